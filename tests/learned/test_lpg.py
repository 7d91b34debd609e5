"""LPG: its equations against a walk in float64 numpy, and what of A2C it leaves as it is, in every bit."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiling import AS_SHIPPED, at_random, core

from purerl import a2c, cli, compiler_options, counters, envs, load
from purerl.errors import ConfigError
from purerl.formulas.returns import Columns
from purerl.learned import artefacts, lpg, sockets
from purerl.learners.parts.time_aware import Timed, passed, then

CONFIG = a2c.Config(total_steps=128 * 50, hidden_sizes=(16,), max_grad_norm=1e9)
STEPS, SIZE, K = 12, 6, 3
FORMS = [
    {"lpg_base": base, "lpg_size": SIZE, "lpg_predictions": K, "time_aware": time_aware}
    for base in ("none", "a2c")
    for time_aware in (False, True)
]


def columns(rng, predictions):
    """An episode that ends at step 4, one that is cut off at step 8, and one that goes on."""
    f = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
    last = (jnp.arange(STEPS) == 4) | (jnp.arange(STEPS) == 8)
    discount = jnp.where(jnp.arange(STEPS) == 4, 0.0, 0.9)
    values = f(STEPS, predictions), f(STEPS, predictions)
    return Columns(-jnp.abs(f(STEPS)), jnp.zeros(STEPS), f(STEPS), *values, discount, last)


def made(form, seed=0):
    """A rule with weights at random: ``(meta_params, parts, estimate after 10 of 50 iterations)``."""
    socket = sockets.make("lpg", **form)
    meta_params = at_random(socket.init, jax.random.key(0), seed=seed)
    parts = socket.parts(meta_params, CONFIG)
    return meta_params, parts, then(parts["estimate"], CONFIG, passed(CONFIG, counters.of(10)))


def softmax(x):
    powers = np.exp(x - np.max(x))
    return powers / np.sum(powers)


def walk(weights, seen, ys, next_ys, age):
    """``pi_hat`` and the logits of ``y_hat``, a step after another, from the last to the first."""
    dense = lambda name, x: x @ weights[name]["kernel"] + weights[name].get("bias", 0.0)
    embed = lambda y: dense("number", np.maximum(dense("embedding", softmax(y)), 0))[0]
    gru = lambda name, x: x @ weights["gru"][name]["kernel"] + weights["gru"][name].get("bias", 0.0)
    sigmoid = lambda x: 1 / (1 + np.exp(-x))
    memory, out = np.zeros(SIZE), {}
    for t in reversed(range(STEPS)):
        if seen["last"][t]:
            memory = np.zeros(SIZE)
        following = 0.0 if seen["discount"][t] == 0 else embed(next_ys[t])
        x = [seen["reward"][t], seen["discount"][t], np.exp(seen["log_prob"][t]), *age, embed(ys[t]), following]
        x = np.array(x)
        reset, keep = (sigmoid(gru("i" + gate, x) + gru("h" + gate, memory)) for gate in "rz")
        memory = keep * memory + (1 - keep) * np.tanh(gru("in", x) + reset * gru("hn", memory))
        out[t] = dense("out", np.maximum(memory, 0))
    return np.array([out[t][0] for t in range(STEPS)]), np.array([out[t][1:] for t in range(STEPS)])


def gae(seen, value, next_value, trace):
    """Each advantage as the sum of what follows in its episode."""
    error = seen["reward"] + seen["discount"] * next_value - value
    result = np.zeros(STEPS)
    for t in range(STEPS):
        weight = 1.0
        for s in range(t, STEPS):
            result[t] += weight * error[s]
            if seen["last"][s]:
                break
            weight *= seen["discount"][s] * trace
    return result


@pytest.mark.rest
@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form['lpg_base']}-{form['time_aware']}")
def test_equations(form):
    beside = form["lpg_base"] == "a2c"
    seen = columns(np.random.default_rng(1), K + beside)
    meta_params, parts, estimate = made(form)
    advantage, target = jax.jit(estimate)(seen)
    double = lambda tree: jax.tree.map(lambda x: np.asarray(x, np.float64), tree)
    wide = double(seen._asdict())
    age = (10 / 49, np.log(128 * 50)) if form["time_aware"] else ()
    ys, next_ys = wide["value"][:, beside:], wide["next_value"][:, beside:]
    pi_hat, logits = walk(double(meta_params)["params"], wide, ys, next_ys, age)
    assert np.ptp(pi_hat) > 0.1
    if beside:
        value, next_value = wide["value"][:, 0], wide["next_value"][:, 0]
        plain = gae(wide, value, next_value, CONFIG.gae_lambda)
        np.testing.assert_allclose(target[:, 0], plain + value, rtol=1e-5, atol=1e-5)
        pi_hat, logits = pi_hat + plain, logits + ys
    np.testing.assert_allclose(advantage, pi_hat, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(target[:, beside:], logits, rtol=1e-5, atol=1e-5)

    divergences = [
        np.sum(softmax(y) * (np.log(softmax(y)) - np.log(softmax(to)))) for y, to in zip(ys, logits, strict=True)
    ]
    expected = divergences + beside * 0.5 * np.square(wide["value"][:, 0] - np.asarray(target, np.float64)[:, 0])
    loss = lambda value: parts["value_loss"](value, value, target, CONFIG)
    np.testing.assert_allclose(loss(seen.value), expected, rtol=1e-5, atol=1e-5)
    assert parts["num_predictions"] == K + beside


def test_the_gradient_of_the_divergence():
    """It is that of its definition, and exactly 0 where there is nothing to learn."""
    rng = np.random.default_rng(2)
    y, target = (jnp.asarray(rng.normal(size=(5, K)), jnp.float32) for _ in range(2))

    def definition(y):
        log = jax.nn.log_softmax(y)
        return jnp.sum(jnp.exp(log) * (log - jax.nn.log_softmax(target)))

    slope = jax.grad(lambda y, to: jnp.sum(lpg.divergence(y, y, to, CONFIG)))
    np.testing.assert_allclose(slope(y, target), jax.grad(definition)(y), rtol=1e-4, atol=1e-6)
    assert not np.any(slope(y, y))


@pytest.mark.rest
def test_it_reads_backwards_within_an_episode():
    """What a step is told depends on it and on what follows in its episode, and on nothing else."""
    seen = columns(np.random.default_rng(0), K)
    _, _, estimate = made(FORMS[0])
    reached = jax.jacrev(lambda reward: estimate(seen._replace(reward=reward))[1])(seen.reward)  # [T, K, T]
    reached = np.any(np.asarray(reached) != 0, axis=1)
    episode = np.cumsum(np.concatenate([[0], np.asarray(seen.last)[:-1]]))
    expected = (np.arange(STEPS)[:, None] <= np.arange(STEPS)) & (episode[:, None] == episode)
    np.testing.assert_array_equal(reached, expected)


MORE = [{}, {"memory": "gru", "hidden_sizes": (8, 8)}, {"lag": 2.0, "max_lag": 2, "max_grad_norm": 0.5}]


@pytest.mark.weekly
@pytest.mark.parametrize(("more", "time_aware"), [(MORE[0], False), (MORE[1], True), (MORE[2], True)])
def test_begins_as_a2c(more, time_aware, key):
    """With A2C as base and a last layer of zeros no bit of a training changes in 50 updates, and predictions stay where
    they were. A critic that predicts nothing more has the same values at first; the gradient of the layers below is
    then a sum in another order, as is the length by which gradients are clipped."""
    config, env = dataclasses.replace(CONFIG, **more), envs.make("CartPole-v1")
    socket = sockets.make("lpg", time_aware=time_aware)
    shipped = lambda f: jax.jit(f, compiler_options=AS_SHIPPED | compiler_options())
    run = lambda parts: shipped(a2c.make_train(config, env, **parts))
    parts = socket.parts(socket.init(jax.random.key(1)), config)
    silent = lambda columns: (jnp.zeros_like(columns.reward), jnp.zeros_like(columns.value))
    plain, by_hand, result = (
        run(given)(key) for given in ({}, {**parts, "estimate": lpg.beside_a2c(silent, config)}, parts)
    )
    jax.tree.map(np.testing.assert_array_equal, core(result.state).params, core(by_hand.state).params)
    jax.tree.map(np.testing.assert_array_equal, result.metrics, by_hand.metrics)
    start, first = (core(shipped(a2c.make_trainer(config, env, **given).init)(key)).params for given in (parts, {}))
    start, first, ended = (leaves(params) for params in (start, first, core(result.state).params))
    predictions = start.keys() - first.keys()
    assert len(predictions) == 2
    for name in start:
        np.testing.assert_array_equal(start[name], (ended if name in predictions else first)[name])
    for name, numbers in plain.metrics.items():
        np.testing.assert_allclose(result.metrics[name][:4], numbers[:4], rtol=1e-4, atol=1e-6)
    learned = leaves(core(run(socket.parts(at_random(socket.init, key), config))(key).state).params)
    assert all(np.any(learned[name] != value) for name, value in ended.items())
    if time_aware:
        assert counters.number(result.state.learner.iterations) == 50


def leaves(params):
    """Parameters by name."""
    return {jax.tree_util.keystr(path): x for path, x in jax.tree_util.tree_flatten_with_path(params)[0]}


@pytest.mark.weekly
def test_alone_it_learns_from_nothing_but_the_rule(key):
    """As published, with a rule at random: policy and predictions move by it, and nothing else is there."""
    config, env = dataclasses.replace(CONFIG, entropy_coef=0.0, total_steps=128 * 5), envs.make("CartPole-v1")
    socket = sockets.make("lpg", lpg_base="none", lpg_size=8)
    meta_params = socket.init(jax.random.key(1))
    assert np.any(meta_params["params"]["out"]["kernel"])
    train = jax.jit(lambda given: a2c.make_train(config, env, **socket.parts(given, config))(key))
    result = train(meta_params).state.learner.params
    assert result["critic"]["params"]["Dense_1"]["bias"].shape == (7,)
    silent = train(jax.tree.map(jnp.zeros_like, meta_params)).state.learner.params
    start = jax.jit(a2c.make_trainer(config, env, **socket.parts(meta_params, config)).init)(key).learner.params
    jax.tree.map(np.testing.assert_array_equal, silent["actor"], start["actor"])
    moved = jax.tree.map(lambda a, b: bool(np.any(a != b)), silent, result)
    assert all(jax.tree.leaves(moved))


def test_age():
    timed = Timed(lambda lifetime: lifetime)
    assert then(3, CONFIG, 0.5) == 3
    lifetime = then(timed, CONFIG, passed(CONFIG, counters.of(49)))
    np.testing.assert_allclose(lifetime, (1.0, np.log(128 * 50)), rtol=1e-6)
    assert then(timed, CONFIG, passed(CONFIG, counters.of())).passed == 0.0


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"lpg_base": "ppo"}, "lpg_base = 'ppo':"),
        ({"lpg_predictions": 1}, "lpg_predictions = 1:"),
        ({"lpg_size": 0}, "lpg_size = 0:"),
        ({"time_aware": 3}, "time_aware = 3:"),
        ({"size": 3}, "settings of lpg: size: unknown; nearest: lpg_size"),
    ],
)
def test_bad_settings(settings, line):
    with pytest.raises(ConfigError, match=line):
        sockets.make("lpg", **settings)


def test_levels_by_values_that_are_not_there():
    config = dataclasses.replace(CONFIG, curriculum="plr", normalize_reward=False)
    socket = sockets.make("lpg", lpg_base="none")
    (line,) = socket.problems(config)
    with pytest.raises(ConfigError, match="^lpg_base = 'none':"):
        socket.parts(None, config)
    assert "level_score" in line and not sockets.make("lpg").problems(config)
    assert not socket.problems(dataclasses.replace(config, level_score="positive-value"))


@pytest.mark.weekly
def test_a_drift_that_is_aware_of_time(tmp_path, capsys):
    """TA-LPO from the command line: found, drawn, learned by, and not distilled."""
    result = tmp_path / "search"
    few = [*TINY, "--num-epochs", 1, "--num-minibatches", 2]
    evolve = ["evolve", "policy-drift", "--env", "CartPole-v1", "--population", 4, *few, "--time-aware"]
    assert run(*evolve, "--lifetimes", 1, 0.5, "--generations", 1, "--out", result) == 0
    artefact = artefacts.load(result)
    assert artefact.settings == {"time_aware": True} and artefact.meta_params[0]["kernel"].shape == (24, 128)
    assert (result / "learned.png").exists()
    train = ["train", "ppo", "--env", "CartPole-v1", *few, "--objective", result, "--out", tmp_path / "used"]
    assert run(*train) == 0
    capsys.readouterr()
    for into in ([], ["--into", "network", "--out", tmp_path / "small"]):
        assert run("evolve", "distill", result, *into) == 2
        assert "policy-drift: is time_aware; only functions without time inputs" in capsys.readouterr().err


def run(*args):
    """The exit code of a command."""
    with pytest.raises(SystemExit) as stop:
        cli.main(list(map(str, args)))
    return stop.value.code


TINY = ["--total-steps", 512, "--num-envs", 4, "--num-steps", 16, "--hidden-sizes", 8]


@pytest.mark.weekly
@pytest.mark.parametrize("base", ["a2c", "none"])
def test_a_search(base, tmp_path, capsys):
    """From its directory: found, kept with its settings, and learned by; resumed in its own bits."""
    result, used = tmp_path / "search", tmp_path / "used"
    form = "--lpg-base", base, "--lpg-size", 4, "--lpg-predictions", 3, "--time-aware"
    assert run("evolve", "lpg", "--env", "Catch-bsuite", "--population", 4, *TINY, *form, "--generations", 2,
               "--out", result) == 0  # fmt: skip
    artefact = artefacts.load(result)
    assert artefact.settings == {"time_aware": True, "lpg_base": base, "lpg_size": 4, "lpg_predictions": 3}
    assert artefact.option == "rule"
    assert run("resume", result, "--generations", 3) == 0
    train = ["train", "a2c", "--env", "Catch-bsuite", *TINY, "--rule", result]
    assert run(*train, "--out", used) == 0 and load(used).saved["learned"]["rule"]["socket"] == "lpg"
    capsys.readouterr()
    assert run("train", "disco", "--env", "Catch-bsuite", "--rule", result, "--out", tmp_path / "wrong") == 2
    assert "is a function for the socket lpg, not for disco" in capsys.readouterr().err
