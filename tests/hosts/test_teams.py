"""Environments of Gymnasium with spaces, rewards and ends for each of several agents, as parallel environments."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from purerl.hosts import making, pettingzoo, rows, teams


class Pair(gymnasium.Env):
    """Two agents, the second of which is paid 2 and ends after two of three steps; ``form`` is what holds the parts."""

    def __init__(self, form, whole=False):
        self.form, self.whole, keys = form, whole, (0, 1) if form is tuple else ("a", "b")
        self.keys, one = keys, spaces.Box(0, 9, (1,), np.float32)
        holder = spaces.Tuple if form is tuple else spaces.Dict
        self.observation_space = holder(self.parts([one, one]))
        self.action_space = holder(self.parts([spaces.Discrete(3), spaces.Discrete(3)]))

    def parts(self, values):
        return tuple(values) if self.form is tuple else dict(zip(self.keys, values, strict=True))

    def obs(self):
        return self.parts([np.full(1, self.t, np.float32)] * 2)

    def reset(self, seed=None, options=None):
        self.t, self.seen = 0, []
        return self.obs(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.t += 1
        self.seen.append(action)
        over = self.t == 3
        terminated = over if self.whole else self.parts([over, self.t >= 2])
        return self.obs(), self.parts([1, 2]), terminated, False, {}


class Alone(Pair):
    """One agent with the same spaces."""

    def step(self, action):
        obs, _, _, _, info = super().step(action)
        return obs, 1.0, self.t == 3, False, info


@pytest.mark.parametrize("form", [tuple, dict])
def test_agents_are_told_by_the_rewards(form):
    assert teams.agents_of(Pair(form)) == list(Pair(form).keys)
    assert teams.agents_of(Alone(form)) == []
    assert teams.agents_of(gymnasium.make("CartPole-v1")) == []


@pytest.mark.parametrize("form", [tuple, dict])
def test_an_agent_that_ended_leaves_and_its_last_action_is_repeated(form):
    env = Pair(form)
    team = teams.Team(env, list(env.keys))
    first, second = team.possible_agents
    obs, _ = team.reset(seed=0)
    assert set(obs) == {first, second}
    for action in (0, 1):
        _, reward, terminated, truncated, _ = team.step({first: action, second: 2})
        assert reward == {first: 1, second: 2}
    assert terminated == {first: False, second: True}
    assert truncated == {first: False, second: False}
    assert team.agents == [first]
    obs, reward, terminated, *_ = team.step({first: 1})
    assert (set(obs), reward, terminated, team.agents) == ({first}, {first: 1}, {first: True}, [])
    assert env.seen[-1] == env.parts([1, 2])


def test_a_flag_for_all_ends_all():
    source = pettingzoo.parallel("pair", lambda **more: teams.Team(Pair(tuple, whole=True), [0, 1]))
    batch = rows.host_env(source, []).batch(2)
    batch.reset(np.arange(2))
    for last in (False, False, True):
        turn = batch.step(np.zeros((2, 2), np.int32))
        np.testing.assert_array_equal(turn.reward, [[1, 2], [1, 2]])
        assert (turn.terminated == last).all() and not turn.truncated.any()
    batch.close()


def pair():
    return Pair(tuple)


def test_such_an_environment_has_agents():
    host = making.make(f"{__name__}:pair", {})
    assert host.num_agents == 2 and host.seats
    batch = host.batch(1)
    batch.reset(np.zeros(1, int))
    turns = [batch.step(np.zeros((1, 2), int)) for _ in range(3)]
    assert [turn.terminated[0].tolist() for turn in turns] == [[False, False], [False, True], [True, True]]
    assert [turn.reward[0].tolist() for turn in turns] == [[1, 2], [1, 2], [1, 0]]
    batch.close()
