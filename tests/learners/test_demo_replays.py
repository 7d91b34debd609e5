"""Demonstrations beside the replay of algorithms that learn from transitions, against walks in numpy."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import dqn, envs, record, replay, td3
from purerl.algos import ALGORITHMS
from purerl.algos.ddpg import make_network as actor_and_critics
from purerl.algos.dqn import make_network as action_values
from purerl.errors import ConfigError
from purerl.learners.parts import from_replay
from purerl.loops.evaluation import random_player
from purerl.replay.ring import RingState
from purerl.spaces import Box
from purerl.types import Dataset, Transition

GAMMA, STEPS, ENVS, BATCH = 0.9, 2, 2, 64
LENGTHS, CUT = (4, 1, 3, 2), (False, True, True, False)
"""Episodes of the demonstrations, and which of them were cut off."""
CONFIG = dqn.Config(num_envs=ENVS, num_steps=8, capacity=32, batch_size=BATCH, n_step=STEPS, gamma=GAMMA)
ENV = envs.make("probe/constant-reward", max_steps=5)
IN_BOX = ENV._replace(action_space=Box(-1.0, 1.0, (1,), jnp.float32))
VIEW = replay.transitions(STEPS, GAMMA)


def episodes():
    steps, ends = sum(LENGTHS), np.cumsum(LENGTHS) - 1
    number, cut = np.arange(steps), np.zeros(steps, bool)
    cut[ends] = CUT
    last = np.isin(number, ends)
    obs, final = number[:, None].astype(np.float32), 100 + np.arange(len(ends))[:, None].astype(np.float32)
    return Dataset(obs, np.zeros(steps, np.int32), number.astype(np.float32) + 1, last & ~cut, cut, final)


DATA = episodes()


def walked(start):
    """The reward, the discount and the next observation of a transition that begins with a step of the data."""
    total, discount = 0.0, 1.0
    for step in range(start, start + STEPS):
        total, discount = total + discount * DATA.reward[step], discount * GAMMA
        if DATA.last[step]:
            return total, discount * DATA.truncated[step], DATA.final_obs[np.sum(DATA.last[:step]), 0]
    return total, discount, DATA.obs[step + 1, 0]


def drawing(demos):
    """A function of ``demo_ratio``: batches of a full ring whose rewards are -1, and the state of the replay."""
    obs = np.zeros(1, np.float32)
    one = Transition(obs, np.int32(0), np.float32(-1), *np.zeros(2, bool), obs, ())
    rows = jax.tree.map(lambda x: jnp.broadcast_to(x, (16, ENVS, *np.shape(x))), one)

    def draw(ratio):
        memory = from_replay.make_replay(dataclasses.replace(CONFIG, demo_ratio=ratio), ENV, VIEW, demos)
        state = memory.add(memory.init(one), rows)
        return jax.vmap(lambda key: memory.sample(state, key))(jax.random.split(jax.random.key(0), 40)), state

    return draw


@pytest.mark.rest
def test_uniform_replays_mix():
    draw = jax.jit(drawing(DATA))
    for ratio in (0.0, 0.25, 1.0):
        sample, _ = jax.device_get(draw(ratio))
        given, items = sample.env >= ENVS, sample.items
        assert abs(given.sum() - ratio * given.size) <= 4 * np.sqrt(given.size * ratio * (1 - ratio))
        assert np.all(sample.weight == 1)
        np.testing.assert_allclose(items.reward[~given], -1 - GAMMA, rtol=1e-6)
        reward, discount, after = np.array([walked(start) for start in sample.slot[given]]).reshape(-1, 3).T
        np.testing.assert_allclose(items.reward[given], reward, rtol=1e-6)
        np.testing.assert_allclose(items.discount[given], discount, rtol=1e-6)
        np.testing.assert_array_equal(items.next_obs[given][discount > 0, 0], after[discount > 0])
        assert not ratio or set(sample.slot[given]) == set(range(len(DATA.reward)))


def test_without_demonstrations_there_is_the_ring_alone():
    _, state = jax.eval_shape(drawing(None), 0.5)
    assert isinstance(state, RingState)


def test_those_who_take_demonstrations():
    optional = [name for name in ALGORITHMS if set(ALGORITHMS[name].datasets) - set(ALGORITHMS[name].required)]
    critics = ["crossq", "ddpg", "masac", "mpo", "sac", "sac-discrete", "td3", "tqc"]
    assert optional == sorted([*critics, "apex", "c51", "dqn", "iqn", "qr-dqn", "rainbow"])
    with pytest.raises(ConfigError, match=r"^demos: obs is float32\[10, 1\], expected float32\[10, 4\]\ndemos: "):
        dqn.make_trainer(dqn.Config(), envs.make("CartPole-v1"), demos=DATA)


SIZES = {"num_envs": 8, "num_steps": 16, "capacity": 2560, "warmup_steps": 128, "batch_size": 32, "n_step": 1}
LEARNING = {**SIZES, "total_steps": 128 * 120, "num_updates": 8, "hidden_sizes": (16,), "learning_rate": 1e-2}


@pytest.mark.weekly
@pytest.mark.parametrize(("algo", "env", "more"), [(dqn, ENV, {"target_period": 5}), (td3, IN_BOX, {"tau": 0.1})])
def test_demonstrations_alone_are_worth_what_went_on_after_their_cuts(algo, env, more):
    """Reward 1 a step, cut every 5: worth 1 / (1 - gamma) = 10, also if every transition is a demonstration."""
    demos = record(jax.random.key(0), env, random_player(env), 8)
    config = algo.Config(**LEARNING, **more, gamma=GAMMA)

    def train(ratio, key):
        state = algo.make_train(dataclasses.replace(config, demo_ratio=ratio), env, demos=demos)(key).state
        if algo is dqn:
            return action_values(config, env).apply(state.learner.params, demos.obs[:1], ())
        critic = state.learner.params["critic"]
        return actor_and_critics(config, env).q_values(critic, demos.obs[:1], jnp.zeros((1, 1)))

    values = jax.jit(jax.vmap(train, in_axes=(0, None)))(jnp.array([1.0, 0.5]), jax.random.key(0))
    np.testing.assert_allclose(values, 1 / (1 - GAMMA), rtol=0.1)
