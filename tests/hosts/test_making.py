"""Environments of the host by name, compared with plain loops over Gymnasium's own."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from purerl.errors import ConfigError
from purerl.hosts import making

LANES, STEPS = 3, 120


def played(batch, actions, lanes=LANES):
    """Observations acted upon, then turns."""
    return batch.reset(np.arange(lanes)), [batch.step(action) for action in actions]


def test_trajectories_equal_a_plain_loop_bit_for_bit():
    actions = np.random.default_rng(0).integers(0, 2, (STEPS, LANES))
    first, turns = played(making.make("gymnasium/CartPole-v1", {}).batch(LANES), actions)
    for lane in range(LANES):
        env = gymnasium.make("CartPole-v1")
        obs, ends = env.reset(seed=lane)[0], 0
        np.testing.assert_array_equal(first[0][lane], obs)
        for action, turn in zip(actions[:, lane], turns, strict=True):
            obs, reward, terminated, truncated, _ = env.step(action)
            np.testing.assert_array_equal(turn.next_obs[0][lane], obs)
            seen = turn.reward[lane], turn.terminated[lane], turn.truncated[lane]
            assert seen == (reward, terminated, truncated and not terminated)
            if terminated or truncated:
                obs, ends = env.reset()[0], ends + 1
            np.testing.assert_array_equal(turn.obs[0][lane], obs)
        assert ends >= 2


def test_nothing_imports_jax():
    code = (
        "import sys, numpy; from purerl.hosts import making; b = making.make('gymnasium/CartPole-v1', {}).batch(2);"
        "b.reset(numpy.arange(2)); b.step(numpy.zeros(2, int)); assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="nearest: CartPole-v1"):
        making.make("gymnasium/CartPol-v1", {})
