"""Curricula on bandits whose solution is known."""

import bandits
import jax
import numpy as np
import pytest

from purerl import loops


@pytest.fixture(scope="module")
def regret():
    env = bandits.minimax_regret()
    keys = jax.random.split(jax.random.key(0), 10)
    return lambda make, seeds=10, **settings: np.asarray(
        jax.vmap(bandits.worst_regret)(bandits.policies(make(env, **settings), 3000, keys[:seeds])[0])
    )


@pytest.mark.weekly
def test_random_levels_end_in_the_trap(regret):
    assert regret(bandits.randomised).min() >= 0.95


@pytest.mark.rest
def test_robust_replay_finds_the_least_regret(regret):
    result = regret(bandits.replaying, robust=True)
    assert result.min() >= 0.4 and result.max() <= 0.45


@pytest.mark.weekly
def test_replay_finds_the_least_regret(regret):
    assert regret(bandits.replaying).max() <= 0.45


@pytest.mark.weekly
@pytest.mark.parametrize("settings", [{"score": bandits.of_returns(-1.0)}, {"staleness": 1.0}])
def test_scores_are_what_finds_it(regret, settings):
    assert regret(bandits.replaying, 3, robust=True, **settings).min() >= 0.95


@pytest.mark.rest
def test_the_most_learnable_levels_are_kept():
    env = bandits.learnability()
    trainer = bandits.learnable(env, capacity=32, share=0.5, refresh=100, limit=env.design.solved)
    state = jax.jit(loops.train(trainer, 101))(jax.random.key(0)).state.curriculum
    chance = np.asarray(state.buffer.levels)
    spread = np.std(chance * (1 - chance)) / np.sqrt(32)
    assert state.buffer.size == 32 and np.all(state.buffer.score == 0.25)
    assert np.mean(chance * (1 - chance)) == pytest.approx(bandits.MOST_LEARNABLE, abs=4 * spread)
    assert state.age == 1 and 0 < state.coming.size <= 16
