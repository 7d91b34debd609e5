"""What Python and notebooks have of a training: words, numbers, tables, progress, and an end when it is interrupted."""

import dataclasses
import json
import os
import shutil
import signal
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import run
from rich.console import Console

import purerl
from purerl import ConfigError, a2c, counters, envs
from purerl.display import progress
from purerl.runs.reading import evaluation

CONFIG = a2c.Config(hidden_sizes=(4,), num_envs=2, num_steps=8, total_steps=16 * 6)
CARTPOLE = envs.make("CartPole-v1")
RUN = ["a2c", "--env", "CartPole-v1", "--num-envs", "2", "--num-steps", "8", "--hidden-sizes", "4"]


KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def whole():
    """A whole training as one program."""
    return jax.jit(a2c.make_train(CONFIG, CARTPOLE))(KEY)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """A sweep of two values and two seeds, three agents at a time, whose log has its batches one after the other."""
    directory = tmp_path_factory.mktemp("python") / "sweep"
    args = ["--gamma", "0.9,0.99", "--num-seeds", 2, "--seed", 5, "--agents-at-once", 3, "--eval-episodes", 2]
    run("sweep", *RUN, *args, "--total-steps", 96, "--out", directory)
    return directory


def test_words_are_short(key):
    """A result had 82,729 characters."""
    result = jax.eval_shape(a2c.make_train(CONFIG, CARTPOLE), key)
    assert repr(a2c) == "Algorithm('a2c')"
    expected = "Env('CartPole-v1', observations Box(float32[4] in [..., ...]), actions Discrete(n=2))"
    assert repr(CARTPOLE) == expected
    assert repr(envs.make("Pendulum-v1")).endswith("actions Box(float32[1] in [-2, 2]))")
    assert repr(envs.make("TicTacToe-v0")).endswith(", 2 agents)")
    assert repr(envs.make("Catch-bsuite", frame_stack=4).observation_space).endswith("in [0, 1], 4 frames)")
    assert "metrics [6]: alive, " in repr(result) and len(repr(result)) < 300
    leaves = [leaf for leaf in jax.tree.leaves(result.state) if hasattr(leaf, "dtype")]
    assert f"({sum(x.size * x.dtype.itemsize for x in leaves):,} bytes in {len(leaves)} arrays)" in repr(result.state)


def test_means_are_over_what_exists():
    """By hand: the mean of a return over six episodes of iterations with 0, 2 and 4 of them, as jax and as agents."""
    one = {
        "episodes": jnp.array([0, 2, 4]),
        "episode_return": jnp.array([jnp.nan, 10.0, 40.0]),
        "episode_length": jnp.array([jnp.nan, 5.0, 2.0]),
        "loss": jnp.array([1.0, jnp.nan, 3.0]),
        "alive": jnp.array([True, True, True]),
    }
    result = purerl.means(one)
    assert result == {"episodes": 6, "episode_return": 30, "episode_length": 3, "loss": 2, "alive": 1}
    two = {name: jnp.stack([values, values]) for name, values in one.items()} | {"loss": jnp.array([[1.0], [7.0]])}
    assert purerl.frame({}).empty and purerl.means(two)["loss"] == 4 and purerl.means(two)["alive"] == 2
    assert purerl.means(two)["episode_return_0.5"] == 30
    none = {name: values[:1] for name, values in one.items()}  # rllib divided by zero here, with a warning
    assert np.isnan(purerl.means(none)["episode_return"]) and purerl.means(none)["episodes"] == 0


def test_tables(whole):
    """A row an iteration; of several agents theirs one after the other."""
    table = purerl.frame(whole.metrics)
    assert list(table["iteration"]) == [1, 2, 3, 4, 5, 6] and list(table.columns)[1:] == list(whole.metrics)
    np.testing.assert_array_equal(table["loss"], whole.metrics["loss"])
    many = purerl.frame({"loss": np.arange(6.0).reshape(2, 3)})
    assert many.to_dict("list") == {
        "agent": [0, 0, 0, 1, 1, 1],
        "iteration": [1, 2, 3, 1, 2, 3],
        "loss": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
    }


@pytest.mark.rest
def test_the_metrics_of_a_run_are_those_of_its_log(sweep):
    """Line by line of the log, agent by agent, beside what was swept; and the summary is the file's."""
    loaded = purerl.load(sweep)
    assert repr(loaded) == f"Run({str(sweep)!r}, a2c on CartPole-v1, 4 agents)"
    assert loaded.summary == json.loads((sweep / "summary.json").read_text())
    lines = [json.loads(line) for line in (sweep / "metrics.jsonl").read_text().splitlines()]
    metrics, places = loaded.metrics, [(0, 5), (0, 6), (1, 5), (1, 6)]
    assert metrics["loss"].shape == (4, 6) and len(lines) == 24
    for line in lines:
        at = places.index((line["config"], line["seed"])), line["iteration"] - 1
        for name in ("loss", "env_steps", "episode_return", "alive"):
            expected = np.nan if line[name] is None else line[name]
            np.testing.assert_equal(float(metrics[name][at]), float(expected))
    table = purerl.frame(loaded)
    last = table[(table["seed"] == 6) & (table["gamma"] == 0.99) & (table["iteration"] == 6)]
    assert list(last["agent"]) == [3] and last["loss"].item() == metrics["loss"][3, 5]


@pytest.mark.rest
def test_a_log_is_not_believed(sweep, tmp_path):
    """Lines of other agents and of iterations that cannot be allocate nothing; a log of something else is refused."""
    directory = tmp_path / "sweep"
    shutil.copytree(sweep, directory)
    log, expected = directory / "metrics.jsonl", purerl.load(sweep).metrics
    odd = [{"iteration": 10**15, "config": 0, "seed": 5}, {"iteration": -3, "config": 0, "seed": 5}]
    odd += [{"iteration": 1, "config": 9, "seed": 5}, {"config": 0, "seed": 5}, {"iteration": 1.5e300, "seed": 5}]
    log.write_text(log.read_text() + "".join(json.dumps({**row, "loss": 7}) + "\n" for row in odd))
    jax.tree.map(np.testing.assert_array_equal, purerl.load(directory).metrics, expected)
    log.write_text('{"generation": 1}\n')
    with pytest.raises(ConfigError, match="is no log of a training"):
        purerl.load(directory).metrics  # noqa: B018
    log.unlink()
    with pytest.raises(ConfigError, match="No such file"):
        purerl.load(directory).metrics  # noqa: B018


@pytest.fixture
def python_handler():
    """Python's own handler of SIGINT, which a process in the background does not have."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.rest
@pytest.mark.usefixtures("python_handler")
def test_an_interrupt_returns_what_is_there(whole):
    """After the chunk; the second one raises, and Python's own handler is back in either case."""
    seen = []

    def interrupted(state, metrics):
        seen.append(len(metrics["loss"]))
        os.kill(os.getpid(), signal.SIGINT)

    trainer = a2c.make_trainer(CONFIG, CARTPOLE)
    result = purerl.train_in_chunks(trainer, KEY, 1000, interrupted)
    assert seen == [1] and len(result.metrics["loss"]) == 1 and int(result.state.iteration.low) == 1
    np.testing.assert_allclose(result.metrics["loss"], whole.metrics["loss"][:1], rtol=1e-4)
    with pytest.raises(KeyboardInterrupt):
        purerl.train_in_chunks(trainer, KEY, 1000, lambda *_: [interrupted(*_), interrupted(*_)])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.rest
def test_progress_in_lines_and_in_a_cell(key, monkeypatch, capsys):
    """By hand: six iterations of 16 frames; in a notebook the line of a cell is updated."""
    trainer = a2c.make_trainer(CONFIG, CARTPOLE)
    result = purerl.train_in_chunks(trainer, key, 6, purerl.progress())
    assert "100 %" in capsys.readouterr().err and len(result.metrics["loss"]) == 6
    written = []

    class Handle:
        def update(self, data, raw):
            written.append(data["text/plain"])

    def display(data, raw, display_id):
        written.append(data["text/plain"])
        return Handle()

    cell = types.SimpleNamespace(display=display)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(display=cell))
    monkeypatch.setitem(sys.modules, "IPython.display", cell)
    with progress.show(Console(force_jupyter=True), 200, lambda: 0.0) as report:
        report(50, np.array([3.0, np.nan]), 1)
        report(200, np.array([4.0, 5.0]), 2)
    assert written[0].endswith("  starting") and len(written) == 3
    assert written[1].startswith("█" * 5 + "░" * 15 + "  25 %  ") and written[1].endswith("return 3.0  1/2 alive")
    assert written[2].startswith("█" * 20 + " 100 %  ") and written[2].endswith("return 4.0, 5.0")


@pytest.mark.rest
def test_evaluations_do_not_change_a_training(whole):
    """Their numbers are those of `evaluate`, in the iterations that are due; all others are as without them."""
    trainer, states = a2c.make_trainer(CONFIG, CARTPOLE), {}
    length = CONFIG.num_iterations

    def note(state, metrics):
        states[counters.number(state.iteration)] = trainer.learner.policy(jax.device_get(state.learner))

    found = purerl.train_in_chunks(trainer, KEY, length, note, every=4, eval_episodes=3)
    for name, values in whole.metrics.items():
        np.testing.assert_allclose(found.metrics[name], values, rtol=1e-6)
    np.testing.assert_array_equal(np.flatnonzero(np.isfinite(found.metrics["eval_return"])), [3, 5])
    key = evaluation.keys(KEY[None], 0)[0]
    played = jax.jit(lambda policy: purerl.evaluate(key, CARTPOLE, trainer.learner, policy, 3))(states[4])
    assert found.metrics["eval_return"][3] == pytest.approx(float(np.mean(played.episode_return)))
    assert found.metrics["eval_length"][3] == pytest.approx(float(np.mean(played.episode_length)))


@pytest.mark.rest
def test_figures_of_metrics_and_runs(whole, sweep):
    """What they draw, and what they refuse: another axis, another name."""
    figure = purerl.plot({"one": whole.metrics, "two": whole.metrics}, "loss")
    first = figure.axes[0].lines[0]
    assert first.get_label().startswith("one") and figure.axes[0].get_xlabel() == "iterations"
    np.testing.assert_allclose(first.get_ydata(), whole.metrics["loss"], rtol=1e-6)
    of_sweep = purerl.plot(sweep, "loss")
    labels = [line.get_label() for line in of_sweep.axes[0].lines]
    assert sorted(x for x in labels if not x.startswith("_")) == ["gamma 0.9 (2 agents)", "gamma 0.99 (2 agents)"]
    assert of_sweep.axes[0].get_xlabel() == "frames" and of_sweep._repr_png_().startswith(b"\x89PNG")
    for source, metric, more, line in (
        ({"one": whole.metrics, "two": sweep}, "loss", {}, "metrics have iterations and runs have frames"),
        (whole.metrics, "lose", {}, "metric = 'lose': the training has"),
        (sweep, "lose", {}, "no number in the logs"),
        (whole.metrics, "loss", {"group_by": "gamma"}, "no two configurations that differ"),
        (sweep, "loss", {"group_by": "gama"}, "nearest: gamma"),
    ):
        with pytest.raises(ConfigError, match=line):
            purerl.plot(source, metric, **more)


@pytest.mark.rest
def test_evaluations_of_games_and_of_environments_of_the_host():
    """Games tell who won; the host's episodes are the same ones each time, and all numbers exist where they are due."""
    game = envs.make("TicTacToe-v0")
    trainer = a2c.make_trainer(CONFIG, game)
    found = purerl.train_in_chunks(trainer, KEY, 3, every=2, eval_episodes=4).metrics
    shares = found["eval_won/0"] + found["eval_won/1"] + found["eval_drawn"]
    np.testing.assert_allclose(shares, [np.nan, 1.0, 1.0])
    np.testing.assert_allclose(found["eval_return/0"] + found["eval_return/1"], [np.nan, 0.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(found["eval_won/0"] - found["eval_won/1"], found["eval_return/0"], atol=1e-6)
    hosted = a2c.make_trainer(CONFIG, envs.make("gymnasium/CartPole-v1"))
    found = purerl.train_in_chunks(hosted, KEY, 3, every=2, eval_episodes=3).metrics
    assert np.isfinite(found["eval_return"]).tolist() == [False, True, True]
    np.testing.assert_array_equal(found["eval_return"], found["eval_length"])


def test_a_result_becomes_a_run(whole, tmp_path, capsys):
    """It is the run that the command line makes of the same seed, for all that reads runs."""
    path = tmp_path / "run"
    metrics = {**whole.metrics, "eval_return": np.array([np.nan, 5.0, np.nan, np.nan, np.nan, 7.0])}
    metrics |= dict.fromkeys(("eval_return_std", "eval_length"), metrics["eval_return"])
    purerl.save(path, whole._replace(metrics=metrics), a2c, CONFIG, "CartPole-v1", eval_episodes=3)
    made = purerl.load(path)
    run("train", *RUN, "--total-steps", 96, "--eval-episodes", 3, "--out", tmp_path / "same")
    same = purerl.load(tmp_path / "same")
    assert made.summary["return_per_seed"] == same.summary["return_per_seed"] and made.saved["seeds"] == [0]
    for ours, theirs in zip(jax.tree.leaves(made.policy), jax.tree.leaves(same.policy), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)
    assert made.metrics.keys() == same.metrics.keys()
    for name, values in same.metrics.items():
        np.testing.assert_allclose(made.metrics[name], values, rtol=1e-4, atol=1e-5)
    rows = [json.loads(line) for line in (path / "evaluations.jsonl").read_text().splitlines()]
    assert [(row["iteration"], row["env_steps"], row["eval_return"]) for row in rows] == [(2, 32, 5.0), (6, 96, 7.0)]
    run("eval", path, "--episodes", 3, "--json")
    assert json.loads(capsys.readouterr().out)["return_per_seed"] == made.summary["return_per_seed"]
    run("compare", path, tmp_path / "same", "--by", "mean", "--json")
    first, second = json.loads(capsys.readouterr().out)["runs"]
    assert first["per_seed"] == pytest.approx(second["per_seed"], rel=1e-4)
    run("resume", path, "--total-steps", 192, expect=2)
    assert "has no checkpoint" in capsys.readouterr().err


@pytest.mark.rest
def test_a_population_becomes_a_sweep(tmp_path):
    batch, axes = purerl.sweep(CONFIG, gamma=np.array([0.9, 0.9, 0.99, 0.99], np.float32))
    train = jax.vmap(lambda config, key: a2c.make_train(config, CARTPOLE)(key), in_axes=(axes, 0))
    result = jax.jit(train)(batch, jax.vmap(jax.random.key)(np.array([5, 6, 5, 6], np.uint32)))
    path = tmp_path / "sweep"
    swept = {"gamma": [0.9, 0.99]}
    purerl.save(path, result, a2c, CONFIG, "CartPole-v1", seed=5, swept=swept, eval_episodes=2)
    made = purerl.load(path)
    assert made.settings["seed"].tolist() == [5, 6, 5, 6] and made.settings["gamma"].tolist() == [0.9, 0.9, 0.99, 0.99]
    np.testing.assert_allclose(made.metrics["loss"], result.metrics["loss"], rtol=1e-6)
    ranking = json.loads((path / "sweep.json").read_text())["ranked"]
    assert sorted(sum((row["returns"] for row in ranking), [])) == sorted(made.summary["return_per_seed"])
    before = (path / "config.json").read_bytes()
    with pytest.raises(ConfigError, match="--overwrite"):
        purerl.save(path, result, a2c, CONFIG, "CartPole-v1", swept=swept)
    assert (path / "config.json").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"config": dataclasses.replace(CONFIG, hidden_sizes=(8,))}, "its policies|is float32.* in it, and"),
        ({"env": "Catch-bsuite"}, "CartPole|in it, and"),
        ({"env": "Cartpole-v9"}, "nearest"),
        ({"swept": {"gamma": [0.9, 0.99]}}, "has 1 agents, and 2 configurations"),
        ({"swept": {"gama": [0.9]}}, "gama"),
        ({"algo": a2c._replace(name="mine")}, "is no algorithm of purerl"),
        ({"env_params": {"gravty": 9.0}}, "gravty"),
        ({"eval_episodes": 0}, "eval_episodes = 0"),
        ({"algo": "nope"}, "algo = 'nope'"),
        ({"config": purerl.ppo.Config()}, "must be a Config of a2c"),
        ({"swept": {"gamma": ["a"]}}, "must have a number for each configuration"),
        ({"swept": {"gamma": [0.9], "entropy_coef": [0.1, 0.2]}}, "equally many"),
        ({"seconds": 0.0}, "seconds = 0.0: must be above 0"),
        ({"env": CARTPOLE}, "must be the name of the environment"),
    ],
)
def test_what_cannot_have_come_from_there_is_not_saved(change, line, whole, tmp_path):
    given = {"algo": a2c, "config": CONFIG, "env": "CartPole-v1", **change}
    with pytest.raises(ConfigError, match=line):
        purerl.save(tmp_path / "run", whole, **given)
    assert not (tmp_path / "run").exists()
