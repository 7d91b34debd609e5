"""The numbers by which runs and configurations are compared, and how much settings matter."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import counters
from purerl.errors import ConfigError
from purerl.formulas import aggregates
from purerl.loops import stopping
from purerl.runs.reading import comparison

NAN = float("nan")
ABOUT = {"algo": "ppo", "env": "CartPole-v1", "env_params": {}, "env_steps": 30}


def sweep(folder, swept, seeds, returns, log=()):
    folder.mkdir(parents=True)
    summary = {**ABOUT, "swept": swept, "seeds": seeds, "return_per_seed": returns}
    summary["alive_per_seed"] = [x is not None for x in returns]
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in log))
    return folder


def test_a_grid_is_taken_apart():
    """Two factors with effects of +-2 and +-1, no interaction, and seeds at +-0.5: squares of 4, 1 and 0.25."""
    levels = [["a", "a", "b", "b"], [1, 2, 1, 2]]
    middle = np.array([2 + 1, 2 - 1, -2 + 1, -2 - 1], float)
    scores = middle[:, None] + np.array([-0.5, 0.5])
    shares = aggregates.variance_shares(levels, scores)
    np.testing.assert_allclose(shares, [4 / 5.25, 1 / 5.25, 0.0, 0.25 / 5.25], atol=1e-12)
    crossed = np.array([1.0, -1.0, -1.0, 1.0])[:, None]  # an interaction alone
    np.testing.assert_allclose(aggregates.variance_shares(levels, crossed), [0, 0, 1, 0], atol=1e-12)


def test_importance_leaves_out_what_does_not_change():
    """Other libraries divide by zero for a setting with one value, and for scores that are all the same."""
    swept = {"learning_rate": [1e-3, 1e-2], "gamma": [0.99, 0.99]}
    found = comparison.importance(swept, np.array([[1.0, 3.0], [5.0, NAN]]))
    # the one that diverged counts as 1: configurations 2 and 3, all 2.5; squares 1.5**2 + .5**2 + 2.5**2 + 1.5**2 = 11
    assert found["shares"] == pytest.approx({"learning_rate": 1 / 11, "seeds": 10 / 11})
    for scores in ([[1.0], [1.0]], [[NAN], [NAN]]):
        same = comparison.importance(swept, np.array(scores))
        assert same["shares"] == {} and "all agents have the same score" in same["why"]


@pytest.mark.rest
def test_importance_off_a_grid():
    """Random configurations, of which one setting decides, be it a number or a text; and one with no effect at all."""
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(0)
    swept = {"learning_rate": (10 ** rng.uniform(-4, -2, 40)).tolist(), "gamma": rng.uniform(0.9, 0.99, 40).tolist()}
    swept["network"] = ["wide", "deep"] * 20
    for deciding, scores in (
        ("learning_rate", np.log10(swept["learning_rate"])),
        ("network", np.array([x == "deep" for x in swept["network"]], float)),
    ):
        found = comparison.importance(swept, scores[:, None])
        assert found["method"].startswith("random forest, which predicts 9") or "100%" in found["method"]
        assert found["shares"][deciding] > 0.9 and found["shares"]["gamma"] < 0.05
        assert sum(found["shares"].values()) == pytest.approx(1.0)
    noise = comparison.importance(swept, rng.normal(size=(40, 1)))
    assert "predicts 0% of the variance" in noise["method"]


def test_reaching_is_what_stop_at_finds():
    """The rule of the training, applied to its log: the mean over at least 100 new episodes."""
    rng = np.random.default_rng(1)
    episodes = rng.integers(0, 60, (3, 40))
    returns = np.where(episodes > 0, np.linspace(0, 100, 40) + rng.normal(0, 20, (3, 40)), NAN)
    steps = np.broadcast_to(8 * np.arange(1, 41), (3, 40)).astype(float)
    found = comparison.reached({"episode_return": returns, "episodes": episodes, "env_steps": steps}, 60.0)

    class Nothing:
        begin = None
        init = staticmethod(lambda key: None)

        def _replace(self, **made):
            return made["stop"]

    check = stopping.stop_at(Nothing(), 60.0, comparison.EPISODES)
    for agent in range(3):
        state = State(stopping.Stopping(jnp.zeros((), bool), counters.of(), jnp.zeros(()), jnp.zeros((), jnp.int32)), 0)
        for i in range(40):
            metrics = {"episodes": jnp.int32(episodes[agent, i]), "episode_return": jnp.float32(returns[agent, i])}
            state, _ = check(state, state._replace(iteration=counters.of(i + 1)), metrics)
        stopped = stopping.iterations(jax.tree.map(lambda x: jnp.asarray(x)[None], state.stopping))[0]
        assert found[agent] == 8 * stopped
    none = comparison.reached({"episode_return": returns, "episodes": episodes, "env_steps": steps}, 1e6)
    assert np.isnan(none).all()


class State(stopping.NamedTuple):
    stopping: object
    iteration: object
    learner: object = ()
    alive: object = jnp.ones((), bool)


LOG = [
    {"iteration": i + 1, "config": c, "seed": 7, "env_steps": 10 * (i + 1), "episodes": 100, "episode_return": r}
    for c, returns in enumerate(([1.0, 5.0, 9.0], [None, 6.0, 7.0]))
    for i, r in enumerate(returns)
]
LOG[3]["episodes"] = 0


def test_sweeps_are_compared_by_whole_trainings(tmp_path):
    path = sweep(tmp_path / "s", {"learning_rate": [1e-3, 1e-2]}, [7], [2.0, 8.0], LOG)
    final, mean, reach = (comparison.compare([path], by)["runs"] for by in ("final", "mean", "reach:6"))
    names = [f"{path}: learning_rate 0.001", f"{path}: learning_rate 0.01"]
    assert [(row["run"], row["per_seed"]) for row in final] == [(names[1], [8.0]), (names[0], [2.0])]
    assert [(row["run"], row["per_seed"]) for row in mean] == [(names[1], [6.5]), (names[0], [5.0])]
    assert [(row["run"], row["iqm"]["value"]) for row in reach] == [(names[1], 20.0), (names[0], 30.0)]
    assert [row["first_is_better"]["value"] for row in reach] == [0.5, 1.0]
    assert comparison.compare([path], "reach:8")["runs"][1]["per_seed"] != comparison.compare([path])["runs"][1]


def test_who_never_reaches_a_return_is_the_worst(tmp_path):
    """Also for the importance: of four agents, two reach it after 10 and 30 frames, and the others count as 30."""
    swept = {"learning_rate": [1e-3, 1e-2], "gamma": [0.9, 0.9]}
    log = [
        {**LOG[0], "config": c, "seed": s, "env_steps": n, "episode_return": r}
        for c, s, n, r in ((0, 7, 10, 9.0), (0, 8, 30, 9.0), (1, 7, 30, 1.0), (1, 8, 30, 1.0))
    ]
    several = sweep(tmp_path / "several", swept, [7, 8], [1.0] * 4, log)
    shares = comparison.compare([several], "reach:5")["importance"][str(several)]["shares"]
    # means 20 and 30 of 25: 4 * 25 = 100 of (15**2 + 3 * 5**2) = 300
    assert shares == pytest.approx({"learning_rate": 1 / 3, "seeds": 2 / 3})
    path = sweep(tmp_path / "s", {"learning_rate": [1e-3, 1e-2]}, [7], [2.0, 8.0], LOG)
    first, last = comparison.compare([path], "reach:8")["runs"]
    assert first["run"].endswith("0.001") and first["per_seed"] == [30.0] and np.isnan(last["per_seed"]).all()
    assert last["first_is_better"]["value"] == 1.0 and last["iqm"]["value"] == float("inf")


def test_who_has_diverged_reaches_nothing_any_more():
    """Its policy from before plays on, and may play well."""
    metrics = {"episode_return": [[0.0, 9.0]] * 2, "episodes": [[100, 100]] * 2, "env_steps": [[8.0, 16.0]] * 2}
    arrays = {name: np.array(x) for name, x in {**metrics, "alive": [[1, 0], [1, 1]]}.items()}
    np.testing.assert_array_equal(comparison.reached(arrays, 5.0), [NAN, 16.0])


def test_importance_needs_settings_that_differ_and_scores_that_do():
    """A sweep of one sample is legal, and so are copies of one configuration."""
    for swept, scores, why in (
        ({"gamma": [0.9]}, [[1.0, 2.0]], "the same settings"),
        ({"gamma": [0.9, 0.9]}, [[1.0], [2.0]], "the same settings"),
        ({"gamma": [0.9, 0.91, 0.92], "lr": [1, 2, 1]}, [[1, 2], [2, 1], [1.5, 1.5]], "the same mean score"),
    ):
        pytest.importorskip("sklearn")
        found = comparison.importance(swept, np.array(scores, float))
        assert found["shares"] == {} and why in found["why"]


@pytest.mark.parametrize("swept", [{"lr": 5}, {"lr": [None, None]}, {"lr": [[1], [2]]}, {"lr": []}])
def test_hostile_sweeps_are_not_compared(swept, tmp_path):
    path = sweep(tmp_path / "s", swept, [7], [2.0, 8.0], LOG)
    for by in ("final", "mean"):
        with pytest.raises(ConfigError, match="swept must hold lists"):
            comparison.compare([path], by)


@pytest.mark.parametrize("axis", ["env_steps", "updates"])
def test_configurations_that_stopped_early_have_their_own_length(axis, tmp_path):
    """The longest training of each, in what the run counts; 40 is that of who did not stop."""
    path = sweep(tmp_path / "s", {"learning_rate": [1e-4, 1e-3, 1e-2]}, [7, 8], [3.0, 3.0, 2.0, 2.0, 1.0, 1.0])
    summary = json.loads((path / "summary.json").read_text())
    stopped = [10, 20, 5, 30, None, 15]
    summary |= {"env_steps": 0, axis: 40, "stopped_at_per_seed": stopped}
    (path / "summary.json").write_text(json.dumps(summary))
    rows = comparison.compare([path])["runs"]
    assert [row[axis] for row in rows] == [20, 30, 40]
    if axis == "updates":
        assert [row["env_steps"] for row in rows] == [0, 0, 0]


def test_an_agent_is_compared_by_its_number(tmp_path):
    path = sweep(tmp_path / "s", {"learning_rate": [1e-3, 1e-2]}, [7], [2.0, 8.0], LOG)
    rows = comparison.compare([f"{path}:0", f"{path}:1"])["runs"]
    assert [row["per_seed"] for row in rows] == [[2.0], [8.0]] and rows[1]["first_is_better"]["value"] == 0.0
    best = comparison.compare([f"{path}:best", f"{path}:0"], "mean")["runs"]
    assert [row["per_seed"] for row in best] == [[6.5], [5.0]]
    with pytest.raises(ConfigError, match="has agents 0 to 1"):
        comparison.compare([f"{path}:2", str(path)])


@pytest.mark.parametrize(
    ("by", "line"),
    [
        ("last", "must be final, mean or reach:VALUE"),
        ("reach", "must be final, mean or reach:VALUE"),
        ("reach:high", "must be final, mean or reach:VALUE"),
        ("reach:nan", "must be final, mean or reach:VALUE"),
    ],
)
def test_what_is_no_measure(by, line, tmp_path):
    with pytest.raises(ConfigError, match=line):
        comparison.compare([sweep(tmp_path / "s", {}, [7], [2.0])] * 2, by)


def test_what_cannot_be_compared(tmp_path):
    alone = sweep(tmp_path / "alone", {}, [7], [2.0])
    with pytest.raises(ConfigError, match="must be two or more runs, or a sweep"):
        comparison.compare([alone])
    with pytest.raises(ConfigError, match="is no log of a training"):
        comparison.compare([alone, alone], "mean")
    ragged = sweep(tmp_path / "ragged", {"learning_rate": [1e-3, 1e-2]}, [7], [2.0, 8.0, 9.0])
    with pytest.raises(ConfigError, match="divides the agents"):
        comparison.compare([ragged])
