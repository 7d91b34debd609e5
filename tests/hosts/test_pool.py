"""Environments in worker processes, against a plain loop over the same environments."""

import os
import subprocess
import sys
import time

import faulty
import numpy as np
import psutil
import pytest

from purerl.errors import ConfigError, HostError
from purerl.hosts import local, pool, processes
from purerl.hosts.bundle import Recipe

WALK = Recipe("faulty:walk", {})
NUM_ENVS, STEPS = 7, 30
SEEDS = np.arange(100, 100 + NUM_ENVS)
ACTIONS = np.random.default_rng(0).integers(0, 5, (STEPS, NUM_ENVS)).astype(np.int32)


def plain():
    """What each environment does by itself: of all steps, what a `Turn` has."""
    results = []
    for i, seed in enumerate(SEEDS.tolist()):
        walk, rows = faulty.Walk(), []
        obs = [walk.reset(seed)]
        for action in ACTIONS[:, i]:
            next_obs, reward, terminated, truncated = walk.step(action)
            obs.append(walk.begin() if terminated or truncated else next_obs)
            rows.append((next_obs, np.float32(reward), terminated, truncated))
        columns = [np.stack(column) for column in zip(*rows, strict=True)]
        results.append((np.stack(obs), *columns))
    return [np.stack(column, axis=1) for column in zip(*results, strict=True)]


EXPECTED = plain()


def rollout(steppers, ahead):
    """Steps groups of environments by turns; ``ahead`` has the next one step while a turn is waited for."""
    ends = np.cumsum([0, *pool.spread(NUM_ENVS, len(steppers))])
    rows = [slice(*pair) for pair in zip(ends[:-1], ends[1:], strict=True)]
    firsts = [stepper.reset(SEEDS[row]) for stepper, row in zip(steppers, rows, strict=True)]
    turns = [[] for _ in steppers]
    for t in range(STEPS):
        for g, (stepper, row) in enumerate(zip(steppers, rows, strict=True)):
            stepper.send(ACTIONS[t, row])
            if not ahead:
                turns[g].append(stepper.receive())
        if ahead:
            for g, stepper in enumerate(steppers):
                turns[g].append(stepper.receive())
    results = []
    for first, group in zip(firsts, turns, strict=True):
        obs = np.stack([first[0], *(turn.obs[0] for turn in group)])
        rest = [np.stack([turn.next_obs[0] for turn in group])]
        rest += [np.stack([getattr(turn, name) for turn in group]) for name in ("reward", "terminated", "truncated")]
        assert not any(turn.cut for turn in group)
        results.append((obs, *rest))
    return [np.concatenate(column, axis=1) for column in zip(*results, strict=True)]


def check_equal(result):
    assert (result[3] & ~result[4]).sum(axis=0).min() >= 2 and result[4].any()  # two ends of every environment
    for x, y in zip(result, EXPECTED, strict=True):
        np.testing.assert_array_equal(x, y)
        assert x.dtype == y.dtype


@pytest.mark.weekly("9-1", "1-1")
@pytest.mark.parametrize(("workers", "groups", "ahead"), [(1, 1, False), (2, 2, True), (3, 2, False), (9, 1, False)])
def test_workers_equal_a_plain_loop(workers, groups, ahead):
    with pool.open(WALK, NUM_ENVS, num_workers=workers, groups=groups) as opened:
        check_equal(rollout(opened.steppers, ahead))
        assert opened.restarts == 0


@pytest.mark.parametrize("make", [local.inline, lambda batch: local.threaded(lambda: batch)])
def test_stepping_here_equals_a_plain_loop(make):
    stepper = make(faulty.walk().batch(NUM_ENVS))
    check_equal(rollout([stepper], False))
    stepper.close()


def test_a_thread_goes_on_while_another_steps():
    stepper = local.threaded(lambda: faulty.walk(seconds=0.2).batch(2))
    stepper.reset(np.arange(2))
    start = time.monotonic()
    stepper.send(np.zeros(2, np.int32))
    assert time.monotonic() - start < 0.1
    stepper.receive()
    assert time.monotonic() - start > 0.2
    stepper.close()


@pytest.mark.parametrize("make", [local.inline, lambda batch: local.threaded(lambda: batch)])
def test_faults_here_are_raised_here(make):
    stepper = make(faulty.walk().batch(2))
    words = {"raise": "raised ValueError", "nan": "not finite", "shape": "invalid data", "dict": "invalid data"}
    for fault, message in words.items():
        stepper.reset(np.array([1, faulty.PLANTED + faulty.FAULTS.index(fault)]))
        with pytest.raises(HostError, match=message):
            for _ in range(faulty.AT):
                stepper.send(np.zeros(2, np.int32))
                stepper.receive()
    stepper.close()


def test_an_environment_may_write_to_its_actions():
    batch, given = faulty.walk().batch(2), np.ones(2, np.int32)
    given.flags.writeable = False

    def step(action):
        action += 1
        return batch.step(action)

    stepper, plain = local.inline(batch._replace(step=step)), local.inline(faulty.walk().batch(2))
    for each, action in ((stepper, given), (plain, given + 1)):
        each.reset(np.arange(2))
        each.send(action)
    written, expected = stepper.receive(), plain.receive()
    np.testing.assert_array_equal(written.obs, expected.obs)
    np.testing.assert_array_equal(given, 1)


def test_what_was_received_is_kept_as_it_was():
    with pool.open(WALK, 3, num_workers=1) as opened:
        (stepper,) = opened.steppers
        kept, copies = [], []
        stepper.reset(np.arange(3))
        for _ in range(12):
            stepper.send(np.ones(3, np.int32))
            kept.append(stepper.receive())
            copies.append([x.copy() for x in (*kept[-1].obs, *kept[-1].next_obs, *kept[-1][1:4])])
        for turn, copy in zip(kept, copies, strict=True):
            for x, y in zip((*turn.obs, *turn.next_obs, *turn[1:4]), copy, strict=True):
                np.testing.assert_array_equal(x, y)


def test_environments_are_spread_evenly():
    assert pool.spread(7, 3) == [3, 2, 2] and pool.spread(4, 4) == [1, 1, 1, 1]
    with pytest.raises(ConfigError, match="groups = 3"):
        pool.open(WALK, 2, num_workers=1, groups=3)
    before = len(psutil.Process().children())
    with pool.open(WALK, 5, num_workers=4, groups=2):
        assert len(psutil.Process().children()) == before + 2  # the smaller group has two


def test_cores_are_counted_where_the_system_does_not_tell_which_are_ours(monkeypatch):
    assert processes.cores() == len(os.sched_getaffinity(0))
    monkeypatch.delattr(os, "sched_getaffinity")
    assert processes.cores() == os.cpu_count()


def test_actions_of_another_shape_or_kind_are_refused():
    with pool.open(WALK, 2, num_workers=1) as opened:
        (stepper,) = opened.steppers
        stepper.reset(np.arange(2))
        with pytest.raises(ValueError, match="must be"):
            stepper.send(np.zeros((2, 1), np.int32))
        with pytest.raises(TypeError):
            stepper.send(np.zeros(2, np.float32))
    with pytest.raises(HostError, match="closed"):
        stepper.send(np.zeros(2, np.int32))


@pytest.mark.weekly("NoSuch", "exited")
@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (Recipe("faulty:broken", {}), "the walk broke (faulty.py:"),
        (Recipe("faulty:broken", {"how": "exit"}), "exited with code 9"),
        (Recipe("gymnasium/NoSuch-v0", {}), "NoSuch-v0"),
        (Recipe("faulty:broken", {"how": "reset"}), "the walk broke (faulty.py:"),
    ],
)
def test_an_environment_that_cannot_begin_is_told(recipe, message):
    before = len(psutil.Process().children())
    with pytest.raises(ConfigError) as error:
        pool.open(recipe, 2, num_workers=2).steppers[0].reset(np.arange(2))
    assert (
        message in str(error.value) and "worker.py" not in str(error.value) and len(str(error.value).splitlines()) == 1
    )
    assert len(psutil.Process().children()) == before


def test_workers_import_no_jax_and_print_to_the_standard_error():
    code = (
        "import numpy as np, psutil, sys; from purerl.hosts import pool; from purerl.hosts.bundle import Recipe\n"
        "opened = pool.open(Recipe('faulty:broken', {'how': 'print'}), 1, num_workers=1)\n"
        "files = {file.path for each in psutil.Process().children() for file in each.memory_maps()}\n"
        "print(any('jax' in file for file in files), any('numpy' in file for file in files), 'jax' in sys.modules)\n"
        "opened.close()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)
    assert run.stdout == "False True False\n", run.stderr
    assert "loud" in run.stderr
