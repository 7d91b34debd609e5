"""Workers that die, raise, hang or return invalid data, one fault of each kind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import faults
import faulty
import jax
import numpy as np
import psutil
import pytest

from purerl.errors import HostError
from purerl.hosts import local, pool
from purerl.hosts.bundle import Recipe

TIMEOUT = 1.0
TOLD = {
    "raise": "raised ValueError: the walk broke (faulty.py:",
    "hang": "hangs: no answer within 1 s (faulty.py:",
    "spin": "hangs: no answer within 1 s; --worker-timeout gives it more;",
    "parent": "hangs: no answer within 1 s; --worker-timeout gives it more;",
    "kill": "was killed by signal 9 (SIGKILL)",
    "exit": "exited with code 7",
    "sys.exit": "raised SystemExit: bye (faulty.py:",
    "nan": "returned invalid data: the observation of environment {} is not finite",
    "inf": "returned invalid data: the reward of environment {} is not finite",
    "shape": "returned invalid data: observation is float32 [2, 2], must be float32 [2, 3]",
    "fewer": "returned invalid data: reward is float32 [1], must be float32 [2]",
    "dtype": "returned invalid data: observation is complex128 [2, 3], must be float32 [2, 3]",
    "dict": "returned invalid data: an observation is a dict, must be an array",
    "both": "returned invalid data: environment {} is both terminated and truncated",
    "nothing": "returned invalid data: a step is a NoneType, must be a Turn",
}


class Opened:
    """Eight environments in two groups of two workers, and the lines that were told."""

    def __init__(self):
        self.lines = []
        self.pool = pool.open(
            Recipe("faulty:walk", {}),
            8,
            num_workers=2,
            groups=2,
            timeout=TIMEOUT,
            max_restarts=100,
            warn=self.lines.append,
        )


def children():
    """The processes that this one has started and that have not ended."""
    return set(psutil.Process().children(recursive=True))


@pytest.fixture(scope="module")
def opened():
    result = Opened()
    yield result
    workers = children()
    result.pool.close()
    assert len(workers) == 2 and not workers & children()


def step(stepper):
    stepper.send(np.ones(4, np.int32))
    return stepper.receive()


@pytest.mark.weekly("spin", "parent", "exit", "inf", "fewer", "dtype", "both", "nothing")
@pytest.mark.parametrize("fault", faulty.FAULTS)
def test_a_fault_cuts_the_episodes_of_its_worker(opened, fault):
    first, second = opened.pool.steppers
    del opened.lines[:]
    restarts = opened.pool.restarts
    seeds = np.arange(4)
    seeds[3] = faulty.PLANTED + faulty.FAULTS.index(fault)  # the second worker's second row of the first group
    first.reset(seeds)
    other = second.reset(np.arange(10, 14))[0]
    before = step(first), step(first)
    turn = step(first)

    assert opened.pool.restarts == restarts + 1 and len(opened.lines) == 1
    assert len(children()) == 2
    (line,) = opened.lines
    assert line.startswith("worker 1 (environments 2 to 3 and 6 to 7) ")
    assert TOLD[fault].format(2 if fault in ("nan", "both", "inf") else 3) in line
    assert faults.RESTARTED in line

    def check_cut(turn, obs):
        assert turn.cut == 2
        assert turn.truncated[2:].all() and not turn.terminated[2:].any() and not turn.reward[2:].any()
        np.testing.assert_array_equal(turn.next_obs[0][2:], obs[2:])
        assert not turn.obs[0][2:, :2].any() and (turn.obs[0][2:, 2] != obs[2:, 2]).all()  # the first of new episodes

    check_cut(turn, before[-1].obs[0])
    check_cut(step(second), other)  # which waited for its actions as the worker failed
    walks = [faulty.Walk() for _ in range(2)]  # what the other worker has goes on
    for i, walk in enumerate(walks):
        walk.reset(i)
        for each in (*before, turn):
            next_obs, reward, terminated, truncated = walk.step(1)
            np.testing.assert_array_equal(each.next_obs[0][i], next_obs)
            assert (each.reward[i], each.terminated[i], each.truncated[i]) == (
                np.float32(reward),
                terminated,
                truncated,
            )
            if terminated or truncated:
                walk.begin()
    marker = turn.obs[0]
    after = step(first)
    assert after.cut == 0 and (after.next_obs[0][2:, 0] == marker[2:, 0] + 1).all()
    assert step(second).cut == 0


def test_a_fault_while_both_groups_step_and_one_while_none_does(opened):
    first, second = opened.pool.steppers
    worker = next(each for each in psutil.Process().children() if '"worker": 0' in each.cmdline()[-1])
    first.reset(np.arange(4))
    second.reset(np.arange(4))
    del opened.lines[:]
    worker.kill()  # while it waits
    worker.wait(5)
    first.send(np.ones(4, np.int32))
    second.send(np.ones(4, np.int32))
    turns = second.receive(), first.receive()
    assert [turn.cut for turn in turns] == [2, 2] and len(opened.lines) == 1
    assert all(turn.truncated[:2].all() and not turn.truncated[2:].any() for turn in turns)
    seeds = np.array([faulty.PLANTED + faulty.FAULTS.index("raise"), 1, 2, 3])
    first.reset(seeds)
    for _ in range(faulty.AT - 1):
        step(first)
    second.send(np.ones(4, np.int32))
    first.send(np.ones(4, np.int32))
    turns = second.receive(), first.receive()  # the worker's answer to the second was there
    assert [turn.cut for turn in turns] == [0, 2] and len(opened.lines) == 2
    assert step(second).cut == 2


def test_agents_and_observations_of_several_arrays():
    seeds = np.array([1, 2, faulty.PLANTED + faulty.FAULTS.index("raise")])
    with pool.open(Recipe("faulty:team", {}), 3, num_workers=2, warn=lambda line: None) as opened:
        (stepper,), alone = opened.steppers, local.inline(faulty.team().batch(2))
        (number, seen), expected = stepper.reset(seeds), alone.reset(seeds[:2])
        assert number.dtype == np.uint8 and number.shape == (3, 2, 1) and seen.shape == (3, 2, 3)
        ends = 0
        for t in range(12):
            before, action = seen, np.array([[t % 5, 0]] * 3, np.int32)
            stepper.send(action)
            alone.send(action[:2])
            turn, expected = stepper.receive(), alone.receive()
            for x, y in zip(jax.tree.leaves(turn[:5]), jax.tree.leaves(expected[:5]), strict=True):
                np.testing.assert_array_equal(x[:2], y)
            ends += expected.last[:, 0]
            assert turn.cut == (t == faulty.AT - 1)
            if turn.cut:
                assert turn.truncated[2].all() and not turn.reward[2].any() and not turn.terminated[2].any()
                np.testing.assert_array_equal(turn.next_obs[1][2], before[2])
            seen = turn.obs[1]
        assert ends.min() >= 1


@pytest.mark.weekly
def test_new_seeds_follow_from_the_old_and_the_number_of_the_restart():
    results = []
    for _ in range(2):
        with pool.open(Recipe("faulty:walk", {}), 2, num_workers=1, warn=lambda line: None) as opened:
            (stepper,) = opened.steppers
            stepper.reset(np.array([0, faulty.PLANTED]))
            for _ in range(faulty.AT):
                stepper.send(np.ones(2, np.int32))
                turn = stepper.receive()
            results.append(turn.obs[0])
    np.testing.assert_array_equal(*results)


def test_restarts_have_a_limit():
    lines, before = [], children()
    opened = pool.open(Recipe("faulty:walk", {}), 2, num_workers=1, max_restarts=1, warn=lines.append)
    (stepper,) = opened.steppers
    with pytest.raises(HostError, match=r"worker 0 .* raised ValueError.*; no restarts left of 1"):
        for _ in range(2):
            stepper.reset(np.array([0, faulty.PLANTED]))
            for _ in range(faulty.AT):
                stepper.send(np.ones(2, np.int32))
                stepper.receive()
    assert opened.restarts == 1 and len(lines) == 1
    assert children() <= before
    opened.close()


@pytest.mark.weekly
def test_a_worker_that_is_started_anew_has_the_spaces_of_before():
    opened = pool.open(Recipe("faulty:walk", {}), 2, num_workers=1, max_restarts=1, warn=lambda line: None)
    (stepper,) = opened.steppers
    stepper.reset(np.array([0, faulty.PLANTED]))
    opened._layout = [*opened._layout[:2], []]
    with pytest.raises(HostError, match="has other spaces than were made before; no restarts left of 1"):
        for _ in range(faulty.AT):
            stepper.send(np.ones(2, np.int32))
            stepper.receive()


PARENT = """
import signal
import numpy as np
from purerl.hosts import pool
from purerl.hosts.bundle import Recipe

signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background job ignores
opened = pool.open(Recipe("faulty:walk", {}), 4, num_workers=2)
(stepper,) = opened.steppers
stepper.reset(np.array([0, 1, 2, SEED]))
for i in range(10**9):
    stepper.send(np.ones(4, np.int32))
    print(i, flush=True)
    stepper.receive()
"""


@pytest.mark.rest
@pytest.mark.weekly("SIGTERM", "SIGINT")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_no_worker_is_left_when_the_parent_ends(number):
    seed = faulty.PLANTED + faulty.FAULTS.index("parent")  # one hangs, cannot be asked to end, and started another
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", PARENT.replace("SEED", str(seed))],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        text=True,
    ) as parent:
        while parent.stdout.readline() != f"{faulty.AT - 1}\n":
            pass
        time.sleep(0.1)
        workers = psutil.Process(parent.pid).children(recursive=True)
        assert len(workers) == 3
        parent.send_signal(number)
        parent.stdout.read()
    gone, left = psutil.wait_procs(workers, timeout=5)
    assert not left and len(gone) == 3
    assert not [path for path in Path("/dev/shm").glob("*") if "purerl" in path.name]


@pytest.mark.rest
def test_closing_takes_a_second_at_most():
    before = children()
    opened = pool.open(Recipe("faulty:walk", {}), 2, num_workers=1)
    (stepper,) = opened.steppers
    stepper.reset(np.array([0, faulty.PLANTED + faulty.FAULTS.index("spin")]))
    for _ in range(faulty.AT - 1):
        stepper.send(np.ones(2, np.int32))
        stepper.receive()
    stepper.send(np.ones(2, np.int32))
    start = time.monotonic()
    stepper.close()
    assert time.monotonic() - start < 2.0 and children() <= before
    opened.close()
