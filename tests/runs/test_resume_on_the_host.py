"""A run in an environment of the host that goes on: what is exact, and what begins anew."""

import json
import shutil

import jax
import numpy as np
import pytest
from commands import run

from purerl.errors import HostError
from purerl.hosts.opening import How
from purerl.runs.describing.description import Setup, TrainingDescription
from purerl.runs.reading import host_evaluation
from purerl.runs.running.device_program import saved
from purerl.runs.running.host_program import HostProgram
from purerl.store import checkpoint

ITERATION = 4 * 16
WARMUP = 128
SMALL = [
    *("--num-envs", "4", "--num-steps", "16", "--hidden-sizes", "8", "--batch-size", "4"),
    *("--capacity", "512", "--warmup-steps", "128"),
]
pytestmark = pytest.mark.weekly


def rows(directory):
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run of four iterations, and two copies of it that went on to seven."""
    path = tmp_path_factory.mktemp("host")
    first = ["train", "dqn", "--env", "gymnasium/CartPole-v1", *SMALL, "--num-seeds", "2", "--out"]
    run(*first, str(path / "run"), "--total-steps", str(4 * ITERATION + WARMUP))
    for name in ("one", "other"):
        shutil.copytree(path / "run", path / name)
        run("resume", str(path / name), "--total-steps", str(7 * ITERATION + WARMUP))
    return path


def test_what_learns_goes_on_exactly(stopped):
    """Learners, replays, counters and keys are those that were saved; the totals of cut episodes are forgotten."""
    fields = json.loads((stopped / "run" / "config.json").read_text())
    setup = Setup.of(
        TrainingDescription.of_json({x: fields[x] for x in TrainingDescription.names()}, str(stopped / "run" / "x"))
    )
    program = HostProgram(setup.make_trainer, setup.members, How("none", "off"), 0)
    step = checkpoint.newest(stopped / "run" / "checkpoints" / "0")
    before = saved(step, 2, program._made.like, program.chunk.layout)
    try:
        after = program.begin(setup.members, step)
    finally:
        program.close()
    words = lambda state: jax.tree.leaves(state._replace(actors=(), key=jax.random.key_data(state.key)))
    for x, y in zip(words(before), words(after), strict=True):
        np.testing.assert_array_equal(x, y)
    assert np.asarray(before.actors.episode_length).any() and not np.asarray(after.actors.episode_length).any()


def test_episodes_begin_anew_and_are_counted(stopped):
    result = rows(stopped / "one")
    cut = {(row["iteration"], row["seed"]): row["episodes_cut"] for row in result}
    assert sorted(cut) == [(i, seed) for i in range(1, 8) for seed in (0, 1)]
    assert all(bool(count) == (iteration == 5) for (iteration, _), count in cut.items())
    assert cut[5, 0] == cut[5, 1] <= 8


def test_going_on_is_the_same_each_time(stopped):
    texts = [(stopped / name / "policy.safetensors").read_bytes() for name in ("one", "other")]
    assert texts[0] == texts[1] != (stopped / "run" / "policy.safetensors").read_bytes()
    np.testing.assert_equal(*([row["loss"] for row in rows(stopped / name)] for name in ("one", "other")))


def test_what_is_learned_is_saved_if_an_evaluation_fails(tmp_path, monkeypatch):
    def fails(*args):
        raise HostError("the environment broke")

    monkeypatch.setattr(host_evaluation, "evaluate", fails)
    arguments = ["train", "dqn", "--env", "gymnasium/CartPole-v1", *SMALL, "--out", str(tmp_path / "run")]
    run(*arguments, "--total-steps", str(4 * ITERATION + WARMUP), "--eval-every", str(2 * ITERATION), expect=1)
    assert checkpoint.newest(tmp_path / "run" / "checkpoints" / "0").number == 2
    assert [row["iteration"] for row in rows(tmp_path / "run")] == [1, 2]
