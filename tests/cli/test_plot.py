"""``purerl plot`` of run directories of every kind, which are written here by hand."""

import itertools
import json
import re

import jax
import numpy as np
import pytest

from purerl import cli, ppo
from purerl.learned import artefacts, sockets
from purerl.runs.describing import config_file
from purerl.runs.reading import results, run_curves

FRAMES = 64


def plot(*args, expect=0):
    with pytest.raises(SystemExit) as stop:
        cli.main(["plot", *map(str, args)])
    assert stop.value.code == expect


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def config(directory, command="train", **fields):
    directory.mkdir()
    about = {"format": 1, "command": command, "algo": "ppo", "env": "CartPole-v1", "seeds": [0, 1], **fields}
    (directory / config_file.NAME).write_text(json.dumps(about))


@pytest.fixture
def trained(tmp_path):
    """Two agents in two batches, one of which had no episode at first."""
    directory = tmp_path / "trained"
    config(directory)
    of = lambda seed, i: {"iteration": i, "seed": seed, "env_steps": FRAMES * i, "loss": -float(i)}
    rows = [{**of(s, i), "episode_return": None if s and i == 1 else 10.0 * i + s} for s in (0, 1) for i in (1, 2, 3)]
    lines(directory / "metrics.jsonl", rows)
    quantiles = {"iqm": 3.5, "0.05": 1.0, "0.25": 2.0, "0.5": 3.0, "0.75": 4.0, "0.95": 5.0}
    batch = lambda first, shift: {
        "first_member": first,
        "alive": 1,
        "episode_return": {q: value + shift for q, value in quantiles.items()},
    }
    rows = [{"iteration": i, "env_steps": FRAMES * i, **batch(m, 4 * m)} for m in (0, 1) for i in (1, 2, 3)]
    lines(directory / "quantiles.jsonl", rows)
    times = [{"iteration": 3, "first_member": m, "env_steps": 3 * FRAMES, "seconds": 6.0 + 6 * m} for m in (0, 1)]
    lines(directory / "times.jsonl", times)
    return directory


@pytest.fixture
def searched(tmp_path):
    directory = tmp_path / "searched"
    config(directory, "evolve", socket="value-loss", envs=["CartPole-v1"])
    row = lambda i: {"generation": i, "frames": 100 * i, "fitness": i, "fitness_best": 2 * i, "fitness_worst": None}
    lines(directory / "generations.jsonl", [row(i) for i in (1, 2, 3)])
    card = {"algo": "ppo", "config": vars(ppo.Config())}
    meta_params = sockets.make("value-loss").init(jax.random.key(0))
    artefacts.save(directory / artefacts.NAME, artefacts.of_socket("value-loss", meta_params, card))
    return directory


def test_curves_of_a_run(trained):
    [result] = run_curves.lines([trained], "episode_return")
    np.testing.assert_array_equal(result.x, [64, 128, 192])
    np.testing.assert_array_equal(result.values, [[10, 20, 30], [np.nan, 21, 31]])
    np.testing.assert_allclose(run_curves.lines([trained], "loss", "seconds")[0].x, [2, 4, 6])


def test_quantiles_of_batches(trained):
    x, middle, result = results.population(trained)
    np.testing.assert_array_equal(x, [64, 128, 192])
    np.testing.assert_array_equal(middle, [5.5, 5.5, 5.5])
    np.testing.assert_array_equal(result[0.5], [5, 5, 5])
    results.draw(trained)
    assert (trained / "curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "args",
    [["--kind", "curves"], ["--kind", "quantiles"], ["--x", "seconds", "--y", "loss"], ["--y", "frames_per_second"]],
)
def test_pictures_of_a_training(args, trained, tmp_path, capsys):
    if args[-1] == "frames_per_second":
        lines(trained / "times.jsonl", [{"first_member": 0, "env_steps": 64, "seconds": 1, "frames_per_second": 64.0}])
    plot(trained, *args, "--out", tmp_path / "picture.svg")
    text = (tmp_path / "picture.svg").read_text()
    assert "<svg" in text and capsys.readouterr().out == f"{tmp_path / 'picture.svg'}\n"


@pytest.mark.rest
def test_a_map_a_search_and_both_beside_each_other(trained, searched, tmp_path):
    swept = tmp_path / "swept"
    config(swept, "sweep")
    ranked = [{"config": c, "returns": [1.0 + c, None], "value": 1.0} for c in (1, 0)]
    (swept / "sweep.json").write_text(json.dumps({"swept": {"gamma": [0.9, 0.99]}, "ranked": ranked}))
    for runs in ([swept], [searched], [trained, trained]):
        plot(*runs, "--out", tmp_path / "picture.png")
        assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    plot(searched, "--y", "fitness", "--out", tmp_path / "picture.pdf")


def text_of(path):
    """The texts of a picture as SVG, whose letters are shapes beside a comment with each text."""
    return re.findall("<!-- (.*?) -->", path.read_text())


def test_a_large_sweep_has_a_curve_for_each_value_of_a_setting(tmp_path, capsys):
    """By default of the one that explains most; the picture says which, and how many configurations a curve joins."""
    rates, gammas = zip(*itertools.product([1e-3, 1e-2, 1e-1], [0.9, 0.95, 0.99]), strict=True)
    config(tmp_path / "swept", "sweep", swept={"learning_rate": list(rates), "gamma": list(gammas)})
    row = lambda c, s, i: {"config": c, "seed": s, "env_steps": 64 * i, "episode_return": 1000 * rates[c] + gammas[c]}
    rows = [row(c, s, i) for i in (1, 2) for c in range(9) for s in (0, 1)]
    lines(tmp_path / "swept" / "metrics.jsonl", rows)
    for args, setting, values in (
        (["--kind", "curves"], "learning_rate", ("0.001", "0.01", "0.1")),
        (["--group-by", "gamma"], "gamma", ("0.9", "0.95", "0.99")),
    ):
        plot(tmp_path / "swept", *args, "--out", tmp_path / "picture.svg")
        texts = text_of(tmp_path / "picture.svg")
        assert all(f"{setting} {value} (3 configurations, 6 agents)" in texts for value in values)
        assert any(f"9 configurations, one curve for each value of {setting}" in text for text in texts)
    plot(tmp_path / "swept", "--group-by", "lr", "--out", tmp_path / "picture.svg", expect=2)
    assert "group_by = 'lr': unknown; nearest: learning_rate, gamma" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "must be one or more"),
        (["{run}", "--out", "x.jpg"], "out = 'x.jpg':"),
        (["{run}", "--y", "los"], "y = 'los':"),
        (["{run}", "{run}", "--kind", "map"], "kind = 'map':"),
        (["{run}", "--kind", "map"], "sweep.json"),
        (["{run}", "--kind", "quantiles", "--y", "loss"], "--x, --y and --group-by are for curves"),
        (["{run}", "--kind", "quantiles", "--group-by", "gamma"], "--group-by are for curves"),
        (["{run}", "--group-by", "gamma"], "no two configurations that differ"),
        (["{run}/none"], "config.json"),
        (["{run}", "--out", "/nonexistent/x.png"], "cannot be written"),
    ],
)
def test_what_is_refused(args, words, trained, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.rglob("*"))
    plot(*(arg.replace("{run}", str(trained)) for arg in args), expect=2)
    err = capsys.readouterr().err
    assert words in err and "Traceback" not in err and set(tmp_path.rglob("*")) == before


def test_hostile_logs(trained, tmp_path, capsys):
    """What is no number is none; what is no log is refused with its line."""
    (trained / "times.jsonl").unlink()
    plot(trained, "--x", "seconds", "--out", tmp_path / "x.png", expect=2)
    assert "has no times.jsonl" in capsys.readouterr().err
    rows = [{"seed": [1], "env_steps": "many", "episode_return": {}}, {"env_steps": 1e999, "episode_return": "x"}]
    lines(trained / "metrics.jsonl", [*rows, {"seed": 0, "env_steps": 1, "episode_return": 2}])
    plot(trained, "--out", tmp_path / "x.png")
    with (trained / "metrics.jsonl").open("a") as growing:
        growing.write('{"seed": 0, "env_st')
    about = {"format": 1, "command": "train", "algo": "$\\frac{$", "envs": 7}
    (trained / config_file.NAME).write_text(json.dumps(about))
    plot(trained, "--out", tmp_path / "x.png")
    lines(trained / "metrics.jsonl", [{"config": 9, "seed": 0, "env_steps": 1, "episode_return": 2}])
    (trained / config_file.NAME).write_text(json.dumps({**about, "swept": {"gamma": [0.9]}}))
    plot(trained, "--y", "episode_return", "--out", tmp_path / "x.png")
    (trained / "metrics.jsonl").write_text("{}\nnonsense\n")
    plot(trained, "--y", "loss", "--out", tmp_path / "x.png", expect=2)
