"""Learning from demos: values in closed form from nothing else, and what is refused."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from demos import blank

from purerl import envs, r2d3, record
from purerl.algos.r2d2 import make_network
from purerl.errors import ConfigError
from purerl.formulas import td_errors
from purerl.loops.evaluation import random_player

GAMMA = 0.9
CUT = envs.make("probe/constant-reward", max_steps=5)
CONFIG = r2d3.Config(
    total_steps=128 * 120,
    num_envs=8,
    num_steps=16,
    num_updates=8,
    batch_size=32,
    capacity=2560,
    warmup_steps=128,
    burn_in=2,
    unroll=6,
    period=4,
    memory="gru",
    memory_size=8,
    hidden_sizes=(16,),
    target_period=5,
    learning_rate=1e-2,
    gamma=GAMMA,
)


@pytest.mark.weekly
def test_demonstrations_alone_are_worth_what_went_on_after_their_cuts():
    """Reward 1 a step, cut every 5: worth 1 / (1 - gamma) = 10, also if every sequence is a demonstration. One program
    for both ratios, whose demonstrations are no part of a training's state."""
    demos = record(jax.random.key(0), CUT, random_player(CUT), 8)
    network = make_network(CONFIG, CUT)

    def train(ratio, key):
        config = dataclasses.replace(CONFIG, demo_ratio=ratio)
        state = r2d3.make_train(config, CUT, demos=demos)(key).state
        q, _ = network.step(state.learner.params, demos.obs[:1], network.init_carry(1))
        return td_errors.unrescale(jnp.max(q), CONFIG.rescale_epsilon), state.replay.demos

    value, kept = jax.jit(jax.vmap(train, in_axes=(0, None)))(jnp.array([1.0, 0.5]), jax.random.key(0))
    np.testing.assert_allclose(value, 1 / (1 - GAMMA), rtol=0.05)
    assert all(x.size <= 2 * 2 * len(demos.reward) for x in jax.tree.leaves(kept))


def test_what_is_refused():
    with pytest.raises(ConfigError, match="^demos: r2d3 learns from a dataset of play; there is none$"):
        r2d3.make_trainer(CONFIG, CUT)
    other = blank(r2d3, CONFIG, envs.make("CartPole-v1"))
    with pytest.raises(
        ConfigError, match=r"^demos: obs is float32\[1, 4\], expected float32\[1, 1\]\ndemos: final_obs"
    ):
        r2d3.make_train(CONFIG, CUT, **other)
