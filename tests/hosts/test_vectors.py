"""Vector environments of Gymnasium, and CartPole as one array."""

import host_envs
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from host_envs import assert_same, looped, played

from purerl.hosts import cartpole, making
from purerl.hosts.bundle import packed
from purerl.hosts.rows import host_env
from purerl.hosts.vectors import vector


@pytest.mark.parametrize("mode", AutoresetMode)
def test_vectors_equal_a_plain_loop(mode):
    """A `SyncVectorEnv` of NEXT_STEP, Gymnasium's default, is told to leave its environments alone."""
    actions = np.random.default_rng(0).integers(0, 3, (20, 2))
    env = making.make("host_envs:sync", {"mode": mode.value, "length": 4})
    lengths = iter((4, 5))
    assert_same(played(env, actions), looped(lambda: host_envs.Script(next(lengths)), actions))


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_masks_of_vectors_are_seen(mode):
    space = host_envs.spaces.Dict({"x": host_envs.spaces.Box(0, 1, (2,)), "n": host_envs.spaces.Discrete(3)})
    copies = []

    def make(num_envs, pictures):
        made = [host_envs.Nested(space, host_envs.spaces.Discrete(3), masked=True) for _ in range(num_envs)]
        copies[:] = made
        return host_envs.SyncVectorEnv([lambda env=env: env for env in made], autoreset_mode=mode)

    env = host_env(vector("masked", make), [])
    assert env.legal == "action_mask"
    batch = env.batch(2)
    batch.reset(np.arange(2))
    for step in range(1, 9):
        turn = batch.step(np.zeros(2, int))
        np.testing.assert_array_equal(turn.next_obs[0], [[1, 0, 1]] * 2)
        began = step % 4 == 0
        assert turn.terminated.tolist() == [began] * 2
        for row, copy in enumerate(copies):
            np.testing.assert_array_equal(turn.obs[2][row], copy.shown[-1]["x"])
            np.testing.assert_array_equal(turn.next_obs[2][row], copy.shown[-2 if began else -1]["x"])


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_vectors_take_trees_of_actions(mode):
    """Each environment gets its part of each leaf; `Nested` asserts that it is of the space."""
    spaces = host_envs.spaces
    action_space = spaces.Dict({"side": spaces.Discrete(3), "far": spaces.Box(-1, 1, (2,), np.float64)})
    copies = []

    def make(num_envs, pictures):
        copies[:] = [host_envs.Nested(spaces.Box(0, 1, (2,)), action_space, masked=True) for _ in range(num_envs)]
        return host_envs.SyncVectorEnv([lambda env=env: env for env in copies], autoreset_mode=mode)

    env = host_env(vector("hybrid", make), [])
    assert env.legal == "action_mask" and list(env.action_space.spaces) == ["far", "side"]
    batch = env.batch(2)
    batch.reset(np.arange(2))
    far, side = np.float32([[0.5, -1], [0.25, 1]]), np.array([2, 0])
    batch.step(packed([far, side], (2,)))
    for copy, one, other in zip(copies, far, side, strict=True):
        np.testing.assert_array_equal(copy.given[0]["far"], one)
        assert copy.given[0]["side"] == other


@pytest.mark.parametrize("sutton_barto_reward", [False, True])
def test_the_array_of_cartpoles_moves_as_gymnasiums_own_bit_for_bit(sutton_barto_reward):
    """Gymnasium's vector, from the same states, up to each row's first end."""
    size, params = 16, {"sutton_barto_reward": sutton_barto_reward, "max_episode_steps": 30}
    rows, theirs = cartpole.rows(CartPoleVectorEnv(size, **params), "CartPole-v1"), CartPoleVectorEnv(size, **params)
    rows.seed(np.arange(size))
    (first,) = rows.begin(None)
    theirs.reset()
    theirs.state = np.stack([seeding.np_random(i)[0].uniform(-0.05, 0.05, 4) for i in range(size)], axis=1)
    np.testing.assert_array_equal(first, theirs.state.T.astype(np.float32))
    going, cut = np.ones(size, bool), 0
    for action in np.random.default_rng(0).integers(0, 2, (40, size)):
        obs, reward, terminated, truncated, _ = theirs.step(action)
        truncated &= ~terminated
        ends = rows.step(action, None)
        for ours, there in zip((ends.obs[0], *ends[1:4]), (obs, reward, terminated, truncated), strict=True):
            np.testing.assert_array_equal(ours[going], there[going])
        cut += truncated[going].sum()
        going &= ~(terminated | truncated)
        ended = np.flatnonzero(ends.terminated | ends.truncated)
        if len(ended):
            rows.begin(ended)
    assert not going.any() and 0 < cut < size


def test_lengths_of_the_arrays_episodes_are_those_of_single_ones():
    lengths = []
    for array in (0, 1):
        batch = making.make("gymnasium/CartPole-v1", {"vector": array}).batch(8)
        batch.reset(np.arange(8) + 100 * array)
        last = np.stack([batch.step(a).last for a in np.random.default_rng(array).integers(0, 2, (1500, 8))])
        lengths.append(np.concatenate([np.diff(np.flatnonzero(lane)) for lane in last.T]))
    spread = np.sqrt(sum(each.var() / len(each) for each in lengths))
    assert min(map(len, lengths)) > 400 and abs(lengths[0].mean() - lengths[1].mean()) < 4 * spread
