"""Parallel environments of several agents, as PettingZoo has them."""

import host_envs
import numpy as np
import pytest
from gymnasium import spaces

from purerl.errors import ConfigError, HostError
from purerl.hosts import making, moves, opening, pettingzoo
from purerl.hosts.bundle import packed
from purerl.hosts.rows import host_env
from purerl.hosts.sound import InvalidData


def made(**params):
    return host_env(pettingzoo.parallel("agents", lambda: host_envs.Agents(**params)), [])


def test_agents_that_left_stay_as_they_were_and_each_has_its_own_end():
    """The last leaf says who acts next. Where the game is over all are flagged, whoever had left before."""
    env = made()
    assert (env.num_agents, env.action_space, env.seats) == (3, host_envs.spaces.Discrete(3), True)
    batch = env.batch(2)
    first, there = batch.reset(np.array([7, 8]))
    np.testing.assert_array_equal(first, [[[0, 7]] * 3, [[0, 8]] * 3])
    action = np.array([[0, 1, 2], [2, 1, 0]])
    turns = [batch.step(action) for _ in range(5)]
    np.testing.assert_array_equal(
        [turn.reward[0] for turn in turns], [[1, 2, 3], [1, 2, 3], [0, 2, 3], [0, 0, 3], [1, 2, 3]]
    )
    np.testing.assert_array_equal(
        [t.next_obs[0][1, :, 0] for t in turns], [[1] * 3, [2] * 3, [2, 3, 3], [2, 3, 4], [1] * 3]
    )
    ends = [[False] * 3, [True, False, False], [False, True, False], [True] * 3, [False] * 3]
    np.testing.assert_array_equal([turn.terminated[1] for turn in turns], ends)
    assert not any(turn.truncated.any() for turn in turns)
    left = [[True] * 3, [True] * 3, [False, True, True], [False, False, True], [False] * 3]
    np.testing.assert_array_equal([there[0], *(turn.next_obs[1][0] for turn in turns[:4])], left)
    np.testing.assert_array_equal(turns[3].obs[0], [[[0, 7]] * 3, [[0, 8]] * 3])
    assert turns[3].obs[1].all()


def test_an_agent_that_is_cut_off_is_truncated_and_no_other():
    batch = made(cut=("b",)).batch(1)
    batch.reset(np.arange(1))
    turns = [batch.step(np.zeros((1, 3), int)) for _ in range(4)]
    np.testing.assert_array_equal(
        [turn.truncated[0] for turn in turns], [[False] * 3, [False] * 3, [False, True, False], [False] * 3]
    )
    assert turns[3].terminated.all()


def test_each_agent_gets_its_own_tree_of_actions():
    """Of several parts with a Box, which travel as one array of float64."""
    given = []

    class Hybrid(host_envs.Agents):
        def action_space(self, agent):
            return spaces.Tuple([spaces.Box(0, 9, (2,)), spaces.Discrete(3, start=1)])

        def step(self, actions):
            assert all(self.action_space(agent).contains(action) for agent, action in actions.items())
            given.append({agent: (far.tolist(), int(number)) for agent, (far, number) in actions.items()})
            return super().step({agent: number for agent, (_, number) in actions.items()})

    env = host_env(pettingzoo.parallel("agents", Hybrid), [])
    batch = env.batch(1)
    batch.reset(np.arange(1))
    far, number = np.float32([[[1, 2], [3, 4], [5, 6]]]), np.array([[1, 2, 3]])
    turn = batch.step(packed([far, number], (1, 3)))
    assert given == [{"a": ([1, 2], 1), "b": ([3, 4], 2), "c": ([5, 6], 3)}]
    assert turn.reward.tolist() == [[1, 2, 3]]
    batch.step(moves.random(env, np.random.default_rng(0), turn.obs))


def test_agents_need_the_same_spaces():
    with pytest.raises(ConfigError, match="a and b have different spaces"):
        made(spaces_differ=True)


def test_what_is_not_finite_cuts_the_episode_of_all_agents_off():
    source = pettingzoo.parallel("agents", lambda: host_envs.Agents(unpaid=2))
    batch = host_env(source, making.chosen(source, {"mask_nonfinite": 1})).batch(1)
    batch.reset(np.arange(1))
    _, turn = [batch.step(np.ones((1, 3), int)) for _ in range(2)]
    assert turn.truncated.all() and not turn.reward.any() and not turn.terminated.any()
    np.testing.assert_array_equal(turn.next_obs[0][0], [[1, 2]] * 3)
    np.testing.assert_array_equal(turn.obs[0][0], [[0, 0]] * 3)


def test_several_objectives_of_an_agent_are_told_with_the_environment():
    class Objectives(host_envs.Agents):
        def step(self, actions):
            obs, reward, *rest = super().step(actions)
            return obs, reward | ({} if self.seed else {"c": np.ones(2)}), *rest

    env = host_env(pettingzoo.parallel("agents", Objectives), [])
    batch, line = env.batch(2), r"the reward is an array of shape \(2,\), .* objectives$"
    batch.reset(np.array([1, 0]))
    with pytest.raises(InvalidData, match=f"environment 1: {line}"):
        batch.step(np.ones((2, 3), int))
    with pytest.raises(HostError, match=f"at step 1: environment 0: {line}"):
        opening.seconds_of_step(env, 2)


def test_transforms_for_one_agent_are_refused():
    source = pettingzoo.parallel("agents", host_envs.Agents)
    with pytest.raises(ConfigError, match="has 3 agents; action_repeat needs one"):
        making.chosen(source, {"action_repeat": 2})


def test_names_of_pettingzoo():
    pytest.importorskip("mpe2")
    env = making.make("pettingzoo/mpe.simple_spread_v3", {"N": 2})
    batch = env.batch(2)
    assert batch.reset(np.arange(2))[0].shape == (2, 2, *env.observation_space.shape)
    turns = [batch.step(np.zeros((2, 2), int)) for _ in range(25)]
    assert turns[-1].truncated.all() and not turns[-2].last.any()
    with pytest.raises(ConfigError, match="nearest: mpe.simple_spread_v3"):
        making.make("pettingzoo/mpe.simple_spred_v3", {})
