"""Numbers that environments tell at the ends of episodes, through every way in which they are stepped."""

import csv

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics

from purerl.hosts import pool, telling
from purerl.hosts.making import make
from purerl.runs.running.early_stopping import Watched
from purerl.store.metrics import Known, table


class Success(gymnasium.Env):
    """Ends after three steps, a success if the seed was even; ``distance`` is told at each step."""

    observation_space, action_space = spaces.Box(-1, 1, (1,), np.float32), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.won, self.t = not (seed or 0) % 2, 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        info = {"distance": 1.0 / self.t, "note": "no number", "TimeLimit.truncated": False}
        return np.zeros(1, np.float32), 1.0, self.t == 3, False, info | ({"won": self.won} if self.t == 3 else {})


def counted():
    return RecordEpisodeStatistics(Success())


def together(num_envs=1):
    return SyncVectorEnv([Success] * num_envs, autoreset_mode=AutoresetMode.DISABLED)


def at_once(num_envs=1):
    return SyncVectorEnv([Success] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


LAST = [{"distance": 1 / 3, "won": 1.0}, {"distance": 1 / 3, "won": 0.0}]


def played(stepper_step, reset, steps=3):
    reset(np.array([2, 3]))
    return [stepper_step(np.zeros(2, np.int64)).told for _ in range(steps)]


@pytest.mark.parametrize("name", ["Success", "together", "at_once"])
def test_the_last_info_of_an_episode_is_told(name):
    batch = make(f"{__name__}:{name}", {}).batch(2)
    *before, last = played(batch.step, batch.reset)
    batch.close()
    assert before == [(), ()] and [row for row, _ in last] == [0, 1]
    for (_, numbers), right in zip(last, LAST, strict=True):
        assert numbers == pytest.approx(right)


def test_steps_that_a_limit_ends_and_actions_that_are_repeated():
    batch = make(f"{__name__}:Success", {"max_episode_steps": 2}).batch(2)
    assert played(batch.step, batch.reset, 2)[1] == ((0, {"distance": 0.5}), (1, {"distance": 0.5}))
    batch.close()
    batch = make(f"{__name__}:Success", {"action_repeat": 3}).batch(2)
    assert [numbers for _, numbers in played(batch.step, batch.reset, 1)[0]] == [pytest.approx(each) for each in LAST]
    batch.close()


@pytest.mark.rest
def test_workers_tell_and_wrappers_are_asked():
    host = make(f"{__name__}:counted", {})
    with pool.open(host.recipe, 2, num_workers=2) as workers:
        stepper = workers.steppers[0]

        def step(action):
            stepper.send(action)
            return stepper.receive()

        told = played(step, stepper.reset)[2]
    assert [row for row, _ in told] == [0, 1]
    assert [(numbers["won"], numbers["episode/r"], numbers["episode/l"]) for _, numbers in told] == [
        (1.0, 3.0, 3.0),
        (0.0, 3.0, 3.0),
    ]


def test_what_is_a_number():
    info = {
        "a": np.float64(2),
        "b": np.array([3]),
        "c": True,
        "d": "x",
        "e": [1],
        "_f": 1,
        "g": {"h": 4, "i": None},
        5: 6,
    }
    assert telling.numbers_of(info) == {"a": 2.0, "b": 3.0, "c": 1.0, "g/h": 4.0}
    assert telling.numbers_of(None) == telling.numbers_of({"action_mask": np.ones(1)}) == {}
    agents = [{"x": 1}, {"x": 2}]
    assert telling.told(lambda row: agents, np.array([[False, True], [False, False]])) == ((0, {"x": 2.0}),)


def test_a_column_that_comes_later(tmp_path):
    log = table(tmp_path, {}, Known())
    log.write(1, {"loss": 0.5})
    log.write(2, {"loss": 0.25, "info/won": 1.0})
    log.close()
    with open(tmp_path / "log.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["info/won"] for row in rows] == ["", "1.0"] and [row["loss"] for row in rows] == ["0.5", "0.25"]


def test_agents_stop_by_what_is_told():
    """Two members; the mean is over at least four episodes that told something, and begins anew after each check."""
    watched = Watched(2, {"metric": "info/won", "at": 0.75, "episodes": 4})
    chunk = lambda won, episodes: {"info/won": np.array([won]), "episodes": np.array([episodes])}
    assert watched.reached(chunk([1.0, 1.0], [2, 4])).tolist() == [False, True]
    assert watched.reached(chunk([np.nan, 0.5], [3, 4])).tolist() == [False, False]
    assert watched.reached(chunk([0.5, np.nan], [2, 0])).tolist() == [True, False]  # (2 * 1 + 2 * 0.5) / 4
    assert watched.reached({"episodes": np.array([[9, 9]])}).tolist() == [False, False]
