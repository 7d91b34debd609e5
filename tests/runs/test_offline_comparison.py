"""``purerl compare --offline``: sweeps by the policy that a few episodes choose, from run directories to a picture."""

import json

import jax
import numpy as np
import pytest
from commands import run

from purerl.algos import ALGORITHMS
from purerl.formulas import policy_choice
from purerl.runs.describing.description import describe
from purerl.runs.describing.options import TrainOptions
from purerl.runs.reading import evaluation, loading, offline_comparison
from purerl.store.policies import save_policy

SEEDS, EPISODES = 3, 4


def swept(directory, env="CartPole-v1", *, swept=None, alive=None, scale=1.0):
    """A sweep of two configurations of A2C whose policies are drawn at random, and its directory."""
    columns = swept or {"learning_rate": [1e-3, 1e-2]}
    config = ALGORITHMS["a2c"].Config(hidden_sizes=(4,), num_envs=2)
    described = describe("a2c", TrainOptions(env=env, num_seeds=SEEDS), config, swept=columns)
    rng = np.random.default_rng(0)
    draw = lambda x: (scale * (x.ndim > 2) * rng.normal(size=x.shape)).astype(x.dtype)  # biases are 0
    policy = jax.tree.map(draw, loading.shapes(described, 2 * SEEDS))
    directory.mkdir()
    save_policy(directory, policy, {**described.fields, "members": 2 * SEEDS})
    (directory / "summary.json").write_text(json.dumps({"alive_per_seed": alive or [True] * 2 * SEEDS}))
    return directory


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    return swept(tmp_path_factory.mktemp("sweeps") / "one")


@pytest.fixture(scope="module")
def compared(one):
    return offline_comparison.compare([one], episodes=EPISODES, policies=2)


@pytest.mark.rest
def test_values_are_of_other_episodes_than_choices(one, compared):
    """Those of the final evaluation choose; those by which the best of a run is judged anew tell what it returns."""
    [row] = compared["runs"]
    loaded = loading.load(one, playing=True)
    plays = evaluation.prepare(loaded.setup, EPISODES, evaluation.STEPS)
    choosing, telling = (
        plays.episodes(loaded.policy, salt=salt).episode_return.astype(np.float64)
        for salt in (evaluation.EVALUATION_SALT, evaluation.ANEW_SALT)
    )
    np.testing.assert_allclose(row["per_policy"], telling.mean(axis=1))
    again = policy_choice.estimate(choosing, telling.mean(axis=1), 2)
    np.testing.assert_allclose(row["value"], again.value)
    assert np.abs(choosing.mean(axis=1) - telling.mean(axis=1)).max() > 0
    assert row["agents"] == 6 and row["diverged"] == 0 and compared["after"] == [1, 2, 5, 10, 20, 50, 100, 200, 500]
    few, _, *_, many = row["value"]
    assert abs(few - np.mean(row["per_policy"])) < 0.05 * np.ptp(row["per_policy"]) < many - few, row
    assert all(low <= value <= high for low, value, high in zip(row["low"], row["value"], row["high"], strict=True))


@pytest.mark.rest
def test_the_command_prints_and_draws(one, tmp_path, capsys):
    other = swept(tmp_path / "other", alive=[True, False, True, True, True, True], scale=0.1)
    command = ["compare", "--offline", one, other, "--episodes", EPISODES, "--policies", "2"]
    run(*command, "--json", "--out", tmp_path / "plot.png")
    rows = json.loads(capsys.readouterr().out)["runs"]
    assert [row["agents"] for row in rows] == [6, 5] and rows[1]["diverged"] == 1
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    run(*command)
    out = capsys.readouterr().out
    assert "1 diverged" in out and "each among 2 policies" in out and all(len(line) <= 80 for line in out.splitlines())


def test_what_cannot_be_compared_is_told_in_a_line(one, tmp_path, capsys):
    elsewhere = swept(tmp_path / "elsewhere", "Acrobot-v1")
    in_several = swept(tmp_path / "several", swept={"env.gravity": [9.0, 10.0]})
    gone = swept(tmp_path / "gone")
    document = json.loads((gone / "policy.json").read_text())
    (gone / "policy.json").write_text(json.dumps(document | {"env": "nowhere:env"}))
    none = swept(tmp_path / "none", alive=[False] * 6)
    cases = (
        (["--offline", f"{one}:0"], "is one agent; there is nothing to choose among"),
        (["--offline", in_several], "gravity is swept; all policies must have one environment"),
        (["--offline", gone], "nowhere"),
        (
            [
                "--offline",
                none,
            ],
            "all of its agents have diverged",
        ),
        (["--offline", one, "--out", tmp_path / "plot.gif"], "must end in .png, .svg, .pdf"),
        (["--offline", one, "--out", tmp_path / "no" / "plot.png"], "must be a file in an existing directory"),
        (["--offline", one, "--by", "mean"], "by = 'mean': has no effect without offline = False"),
        ([one, "--episodes", "3"], "episodes = 3: has no effect without offline"),
        (["--offline", one, "--policies", "0"], "policies = 0: must lie in [1, 2147483648)"),
        (["--offline", one, elsewhere], "env = 'Acrobot-v1' differs from 'CartPole-v1'"),
    )
    for command, line in cases:
        run("compare", *command, expect=2)
        captured = capsys.readouterr()
        assert line in captured.err and len(captured.err.strip().splitlines()) == 1 and not captured.out
