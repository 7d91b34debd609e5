"""EnvPool's pools as rows of their own; with a small stand-in where EnvPool is not installed."""

import sys
import types

import numpy as np
import pytest
from gymnasium import spaces

from purerl.hosts import making


class Pool:
    """Environments that count their steps and end at 3. A pool answers in falling order, as one of threads may."""

    observation_space, action_space = spaces.Box(0, 100, (1,), np.float32), spaces.Discrete(2)

    def __init__(self, seeds, render_mode):
        self.count, self.render_mode, self.closed = np.array(seeds, np.float32)[:, None] * 10, render_mode, 0

    def answer(self, which):
        order = np.sort(np.arange(len(self.count)) if which is None else which)[::-1]
        return self.count[order], order

    def reset(self, which=None):
        every = slice(None) if which is None else which
        self.count[every] -= self.count[every] % 10
        obs, order = self.answer(which)
        return obs, {"env_id": order}

    def step(self, actions, which):
        self.count[which] += 1
        obs, order = self.answer(which)
        ended = obs[:, 0] % 10 == 3
        return obs, obs[:, 0] * 0.5, ended, np.zeros_like(ended), {"env_id": order, "success": ended * 1.0}

    def render(self, env_ids):
        assert self.render_mode == "rgb_array"
        return np.zeros((1, 4, 6, 3), np.uint8)

    def close(self):
        self.closed += 1


@pytest.fixture
def pools(monkeypatch):
    """The pools that are made of a stand-in for EnvPool."""
    made = []

    def make(task, num_envs, env_seed, num_threads, render_mode):
        assert len(env_seed) == num_envs >= num_threads
        made.append(Pool(env_seed, render_mode))
        return made[-1]

    config = types.SimpleNamespace(_asdict=lambda: {"num_threads": 0})
    monkeypatch.setitem(
        sys.modules,
        "envpool",
        types.SimpleNamespace(
            list_all_envs=lambda: ["Count-v0"],
            make_spec=lambda task: types.SimpleNamespace(config=config),
            make_gymnasium=make,
            __spec__=types.SimpleNamespace(),
        ),
    )
    return made


def test_rows_ascend_and_each_begins_where_it_ended(pools):
    batch = making.make("envpool/Count-v0", {}).batch(3)
    np.testing.assert_array_equal(batch.reset(np.array([1, 2, 4]))[0][:, 0], [10, 20, 40])
    turns = [batch.step(np.zeros(3, np.int32)) for _ in range(4)]
    np.testing.assert_array_equal(
        [turn.next_obs[0][:, 0] - [10, 20, 40] for turn in turns], np.outer([1, 2, 3, 1], [1] * 3)
    )
    np.testing.assert_array_equal([turn.reward for turn in turns[:2]], [[5.5, 10.5, 20.5], [6, 11, 21]])
    np.testing.assert_array_equal([turn.terminated.all() for turn in turns], [False, False, True, False])
    np.testing.assert_array_equal(turns[2].obs[0][:, 0], [10, 20, 40])
    assert turns[2].told == tuple((row, {"success": 1.0}) for row in range(3))
    batch.close()
    assert [pool.closed for pool in pools] == [1, 1]


def test_pictures_are_asked_for_where_they_are_drawn(pools):
    env = making.make("envpool/Count-v0", {})
    assert env.batch(2).frame is None
    pictured = env.pictured(2)
    pictured.reset(np.arange(2))
    assert pictured.frame(0).shape == (4, 6, 3)
    assert [pool.render_mode for pool in pools] == [None, "rgb_array"]


def test_envpool_equals_a_loop_over_its_rows():
    envpool = pytest.importorskip("envpool")
    batch = making.make("envpool/CartPole-v1", {}).batch(4)
    first = batch.reset(np.arange(4))[0]
    alone = [envpool.make_gymnasium("CartPole-v1", num_envs=1, env_seed=[i]) for i in range(4)]
    np.testing.assert_array_equal(first, np.concatenate([env.reset()[0] for env in alone]))
    ends = 0
    for action in np.random.default_rng(0).integers(0, 2, (100, 4)):
        turn = batch.step(action)
        for row, env in enumerate(alone):
            obs, reward, terminated, truncated, _ = env.step(action[row : row + 1])
            np.testing.assert_array_equal(turn.next_obs[0][row], obs[0])
            assert (turn.reward[row], turn.terminated[row]) == (reward[0], terminated[0])
            if terminated[0] or truncated[0]:
                obs, ends = env.reset()[0], ends + 1
            np.testing.assert_array_equal(turn.obs[0][row], obs[0])
    assert ends > 4
