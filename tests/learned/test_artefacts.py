"""Discovered functions as files: what is read is what was written, and nothing but a checked function is ever read."""

import base64
import dataclasses
import json
import random
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import cli, ppo
from purerl.errors import ConfigError
from purerl.formulas import losses
from purerl.learned import artefacts, expressions, shipped, sockets
from purerl.meta import distill

CONFIG = SimpleNamespace(clip_epsilon=0.2, drift_a=2.0, drift_b=0.6)
CARD = {"algo": "ppo", "envs": ["CartPole-v1"], "frames": 10**11 + 7, "evidence": {"fitness": 208.0}}


NAN_WORDS = base64.b64encode(np.full(32, np.nan, np.float32).tobytes()).decode()


def learned(name):
    meta_params = sockets.make(name).init(jax.random.key(0))
    return artefacts.of_socket(
        name, jax.tree.map(lambda x: x + 0.3 * jax.random.normal(jax.random.key(1), x.shape), meta_params), CARD
    )


@pytest.mark.rest("lpg", "disco")
@pytest.mark.parametrize("name", sockets.SOCKETS)
def test_round_trip(name, tmp_path):
    """Every bit, from the file and from the directory that it lies in."""
    artefact = learned(name)
    artefacts.save(tmp_path / artefacts.NAME, artefact)
    for path in (tmp_path, tmp_path / artefacts.NAME, str(tmp_path)):
        read = artefacts.load(path)
        jax.tree.map(np.testing.assert_array_equal, read.meta_params, artefact.meta_params)
        assert (read.socket, read.expression, read.card) == (name, None, CARD)
        assert read.card["frames"] == 100_000_000_007


def test_settings_are_kept(tmp_path):
    """They say which arrays there are, and are told by the digest."""
    settings = {"role": "guide", "inputs": 4, "goal_size": 1, "messages": 3, "message_layers": [5], "unseen": [1]}
    socket = sockets.make("cheap-talk", **settings)
    results = [artefacts.of_socket("cheap-talk", socket.init(jax.random.key(0)), CARD, settings=settings)]
    artefacts.save(tmp_path / artefacts.NAME, results[0])
    results.append(artefacts.load(tmp_path))
    assert results[1].settings == settings and results[1].made.trial and results[1].option == "message"
    jax.tree.map(np.testing.assert_array_equal, results[1].meta_params, results[0].meta_params)
    assert jax.tree.map(np.shape, results[1].meta_params)["trained"][0]["kernel"] == (5, 5)
    value = artefacts.to_json(results[0])
    value["settings"]["message_gain"] = 1.0
    with pytest.raises(ConfigError, match="sha256 differs"):
        artefacts.of_json(value)


def test_closed_form_round_trip(tmp_path):
    tree = ["relu", ["sub", ["mul", ["expm1", "log_ratio"], "advantage"], 0.1]]
    artefacts.save(tmp_path / "drift.json", artefacts.of_expression("policy-drift", tree, CARD))
    read = artefacts.load(tmp_path / "drift.json")
    log_ratio, advantage = jnp.array([0.3, -0.2]), jnp.array([1.0, -2.0])
    expected = np.maximum(np.expm1(log_ratio) * advantage - 0.1, 0)
    np.testing.assert_allclose(artefacts.learned_drift(read, log_ratio, advantage, CONFIG), expected, atol=1e-6)
    assert read.option == "objective" and read.meta_params is None
    distance = artefacts.of_expression("value-loss", ["square", "error"], {}).parts(CONFIG)["value_loss"]
    assert distance(jnp.float32(3.0), jnp.float32(3.0), jnp.float32(1.0), CONFIG) == 4
    with pytest.raises(ConfigError, match="^socket = 'td-loss': does not take a closed form"):
        artefacts.of_expression("td-loss", tree, {})


def rewritten(change):
    """An artefact's JSON after ``change``, with a digest that fits."""
    value = artefacts.to_json(learned("vtrace-weight"))
    change(value)
    names = "socket", "expression", "meta_params", "card"
    settings = {"settings": value["settings"]} if "settings" in value else {}
    value["sha256"] = artefacts._digest({name: value.get(name) for name in names} | settings)
    return value


def first(value):
    return next(iter(value["meta_params"].values()))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda v: v.update(format=99), "format '99', expected 1"),
        (lambda v: v.pop("card"), "has no card"),
        (lambda v: v.update(socket="__import__('os')"), "unknown socket"),
        (lambda v: v.update(socket="lpg"), "arrays are not those of the socket"),
        (lambda v: v["meta_params"].popitem(), "arrays are not those of the socket"),
        (lambda v: first(v).update(shape=[2**40, 2]), "must have the shape"),
        (lambda v: first(v).update(float32="!!!"), "is not base64"),
        (lambda v: first(v).update(float32=None), "is not base64"),
        (lambda v: first(v).update(float32="AAAA"), "has 3 bytes, expected"),
        (lambda v: first(v).update(float32=NAN_WORDS), "numbers that are not finite"),
        (lambda v: v.update(expression=["exec", "error"]), "does not take a closed form"),
        (
            lambda v: v.update(socket="value-loss", expression=["exec", "error"]),
            "is not a finite number, variable or known",
        ),
        (lambda v: v.update(settings={"role": "ally"}), "a vtrace-weight has no such settings"),
        (
            lambda v: v.update(socket="cheap-talk", settings={"gain": 2}),
            "settings of cheap-talk: gain: unknown; nearest: ",
        ),
        (
            lambda v: v.update(socket="cheap-talk", settings={"messages": 10**9, "role": ["spy"]}),
            "role = .'spy',.: must be one of .*; messages = 1000000000:",
        ),
        (lambda v: v.update(socket="cheap-talk", settings={"message_layers": [4] * 99}), "must be at most 8"),
    ],
)
def test_hostile_files(tmp_path, change, line):
    path = tmp_path / artefacts.NAME
    path.write_text(json.dumps(rewritten(change)))
    with pytest.raises(ConfigError, match=line) as raised:
        artefacts.load(path)
    assert len(str(raised.value).splitlines()) == 1 and str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("card", "line"),
    [
        ({}, "must name the algorithm and the config$"),
        ({"algo": "os.system", "config": {}}, "must name the algorithm and the config$"),
        (
            {"algo": "this:s", "config": {}},
            "its card has algo = 'this:s': a file names this module.*--trust imports it, in Python trust=True$",
        ),
        ({"algo": "ppo", "config": {"gama": 3}}, "its card has config: gama: unknown; nearest: gamma"),
        ({"algo": "ppo", "config": {"learning_rate": -1.0}}, "its card has learning_rate = -1.0: must"),
    ],
)
def test_hostile_cards(card, line):
    with pytest.raises(ConfigError, match=line):
        artefacts.training(learned("value-loss")._replace(card=card))


def test_digests_do_not_cover_time_and_machine():
    """Equal searches have artefacts of equal digests; what was measured is read back all the same."""
    documents = [
        artefacts.to_json(learned("td-loss")._replace(measured={"seconds": seconds})) for seconds in (1.5, 2.5)
    ]
    assert documents[0]["sha256"] == documents[1]["sha256"]
    assert [artefacts.of_json(document).measured["seconds"] for document in documents] == [1.5, 2.5]
    without = {name: value for name, value in documents[0].items() if name != "measured"}
    assert artefacts.of_json(without).measured == {}


def test_a_card_is_not_changed_unseen():
    value = artefacts.to_json(learned("vtrace-weight"))
    value["card"]["evidence"]["fitness"] = 500.0
    with pytest.raises(ConfigError, match="sha256 differs"):
        artefacts.of_json(value)


def test_other_files(tmp_path):
    path = tmp_path / artefacts.NAME
    with pytest.raises(ConfigError, match="No such file"):
        artefacts.load(path)
    for text in ("", "[1]", "null", '{"format": 1', "[" * 10**5, "\x80", "cos\nsystem\n(S'touch x'\ntR."):
        path.write_bytes(text.encode("latin-1"))
        with pytest.raises(ConfigError):
            artefacts.load(path)
    with pytest.raises(ConfigError, match="is not a regular file$"):
        artefacts.load("/dev/zero")


@pytest.mark.rest
def test_mutations(tmp_path):
    """A thousand damaged copies: each is refused with `ConfigError`, or says the same as the original."""
    original = artefacts.to_json(learned("vtrace-weight"))
    text, rng, path = json.dumps(original), random.Random(0), tmp_path / artefacts.NAME
    refused = 0
    for _ in range(1000):
        at = rng.randrange(len(text))
        cut = rng.choice((0, 1, 5, len(text)))
        path.write_text(text[:at] + rng.choice(("", "0", "[", '"', "}", "9e999")) + text[at + cut :])
        try:
            read = artefacts.load(path)
        except ConfigError:
            refused += 1
        else:
            assert artefacts.to_json(read)["sha256"] == original["sha256"]
    assert refused > 700


VARIABLES = {"error": jnp.array([-2.0, 0.0, 0.5])}


@pytest.mark.parametrize(
    ("tree", "expected", "words"),
    [
        (["mul", 0.5, ["square", "error"]], [2.0, 0.0, 0.125], "(0.5 * square(error))"),
        (["if_positive", "error", 1, ["neg", "error"]], [2.0, 1.0, 1.0], "if_positive(error, 1, neg(error))"),
        (["log1p_abs", ["div", "error", 2]], [np.log(2), 0.0, np.log(1.25)], "log1p_abs((error / 2))"),
        (["max", ["abs", "error"], ["min", 1, 3]], [2.0, 1.0, 1.0], "max(abs(error), min(1, 3))"),
        ("error", [-2.0, 0.0, 0.5], "error"),
    ],
)
def test_expressions(tree, expected, words):
    expressions.check(tree, ("error",))
    np.testing.assert_allclose(expressions.evaluate(tree, VARIABLES) + 0 * VARIABLES["error"], expected, rtol=1e-6)
    assert expressions.in_words(tree) == words
    assert json.loads(json.dumps(tree)) == tree


def deep(levels):
    tree = "error"
    for _ in range(levels):
        tree = ["neg", tree]
    return tree


def wide(levels):
    tree = "error"
    for _ in range(levels):
        tree = ["add", tree, tree]
    return tree


BAD = ["os", "error.__class__", "__import__('os').system('touch x')", ["eval", "error"], ["__import__", "error"], []]
BAD += [["neg"], ["neg", "error", "error"], ["add", "error"], [["neg"], "error"], True, None, {"op": "neg"}]
BAD += [float("nan"), float("inf"), 10**400, 1e39, -1e39, deep(50), wide(12)]


@pytest.mark.parametrize("tree", BAD)
def test_bad_expressions(tree):
    with pytest.raises(ConfigError, match="^expression: "):
        expressions.check(tree, ("error",))


def dpo(log_ratio, advantage):
    log_ratio, advantage = jnp.asarray(log_ratio), jnp.asarray(advantage)
    return jnp.exp(log_ratio) * advantage - losses.discovered_policy(log_ratio, advantage, CONFIG)


@pytest.mark.weekly
def test_distils_dpo():
    """Fed DPO's own drift it gives back a = 2 and b = 0.6, one term a side."""
    form = distill.drift(dpo)
    assert [name for name, _, _ in form.terms] == ["x - a tanh(x / a)"] * 2
    np.testing.assert_allclose([weight for _, weight, _ in form.terms], 1.0, atol=1e-4)
    np.testing.assert_allclose([a for _, _, a in form.terms], [2.0, 0.6], atol=1e-4)
    assert form.explained > 1 - 1e-6
    closed = artefacts.of_expression("policy-drift", form.tree, {})
    log_ratio, advantage = (x.reshape(-1) for x in jnp.meshgrid(jnp.linspace(-2, 2, 41), jnp.linspace(-3, 3, 31)))
    np.testing.assert_allclose(
        artefacts.learned_drift(closed, log_ratio, advantage, CONFIG), dpo(log_ratio, advantage), atol=1e-4
    )


@pytest.mark.rest
def test_distils_ppo():
    """A clip at 0.2 is one term a side, too."""
    form = distill.drift(lambda *x: sockets.clip_drift(*map(jnp.asarray, x), CONFIG))
    assert [(name, round(w, 3), round(a, 3)) for name, w, a in form.terms] == [("beyond a |A|", 1.0, 0.2)] * 2


def test_distils_distances():
    assert distill.distance(lambda e: 0.5 * e**2).terms == [("x^2", pytest.approx(0.5), 1.0)]
    form = distill.distance(lambda e: 3 * np.tanh(e / 2) + 0.1 * e**2 + 7)
    assert {name: (round(w, 3), round(a, 3)) for name, w, a in form.terms} == {
        "x^2": (0.1, 1.0),
        "tanh(x / a)": (3.0, 2.0),
    }
    noise = np.random.default_rng(0).normal(size=1201)
    noise[600] = 0.0
    assert distill.distance(lambda e: noise).explained < 0.2


def test_functions_that_come_with_purerl(monkeypatch, tmp_path, capsys):
    """They are loaded by name where no such path exists, and listed with the command that uses them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shipped, "FOLDER", tmp_path / "shipped")
    (tmp_path / "shipped").mkdir()
    gap = lambda env, low, high: {"env": env, "iqm_difference": {"low": low, "high": high}}
    rows = [gap("A", 1, 2), gap("A", 0.5, 1), gap("B", 1, 2), gap("B", -2, -1), gap("C", 1, 2), gap("C", -1, 1)]
    mine = learned("value-loss")
    config = dataclasses.asdict(ppo.Config(num_steps=64, value_coef=0.25))
    mine = mine._replace(card={**mine.card, "algo": "ppo", "config": config, "evidence": {"rows": rows}})
    artefacts.save(tmp_path / "shipped" / "mine.json", mine)
    assert artefacts.load("mine").socket == "value-loss"
    artefacts.save(tmp_path / "mine", learned("policy-drift"))
    assert artefacts.load("mine").socket == "policy-drift"
    (tmp_path / "mine").unlink()
    for options, expected in (
        (
            (),
            "mine\n    purerl train ppo --value-loss mine --num-steps 64 --value-coef 0.25\n"
            "    searched for in: CartPole-v1\n"
            "    better than all tuned baselines: A\n    worse than one: B\n    no worse than any: C",
        ),
        (
            ("--json",),
            '[\n  "mine"\n]',
        ),
    ):
        with pytest.raises(SystemExit):
            cli.main(["list", "learned", *options])
        assert capsys.readouterr().out.strip() == expected
    with pytest.raises(ConfigError, match="no name of `purerl list learned`"):
        artefacts.load("yours")


@pytest.mark.parametrize("name", shipped.files())
def test_cards_of_functions_that_come_with_purerl(name):
    """They say how each was searched for, and what a report found in which environments on 512 held-out seeds."""
    artefact = artefacts.load(name)
    algo, config = artefacts.training(artefact)
    assert artefacts.parts([artefact], config) and artefacts.options(algo)[artefact.option] == artefact.socket
    assert artefact.card["frames"] > 1e8 and artefact.card["evidence"]["seeds"] >= 512
    assert {row["env"] for row in artefact.card["evidence"]["rows"] if row["trained_on"]} <= set(artefact.card["envs"])
    assert shipped.files()[name].stat().st_size < 50_000
