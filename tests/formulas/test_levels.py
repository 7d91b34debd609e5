"""What came of play in levels, against a loop over episodes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl.formulas import levels

T, B, LIMIT = 12, 64, 1.0


@pytest.fixture(scope="module")
def play():
    rng = np.random.default_rng(0)
    reward, value, advantage = rng.normal(size=(3, T, B)).astype(np.float32)
    last = rng.random((T, B)) < np.linspace(0, 0.5, B)[None]
    return reward, last, value, advantage


def by_hand(reward, last, value, advantage):
    """One level, episode by episode; the part of one at the end counts only if it is all there is."""
    ends = np.flatnonzero(last)
    parts = [slice(a, b + 1) for a, b in zip([0, *(ends[:-1] + 1)], ends, strict=True)] if ends.size else [slice(None)]
    totals = np.array([reward[part].sum() for part in parts])
    return levels.Played(
        bool(ends.size),
        totals.max(),
        totals.mean(),
        totals.var(),
        (totals > LIMIT).mean(),
        np.mean([value[part].mean() for part in parts]),
        np.mean([np.maximum(advantage[part], 0).mean() for part in parts]),
    )


def test_what_came_of_play(play):
    result = jax.jit(levels.played)(*play, LIMIT)
    for i in range(B):
        one = by_hand(*(x[:, i] for x in play))
        np.testing.assert_allclose([x[i] for x in result], one, rtol=2e-5, atol=2e-5)
    assert result.finished.sum() not in (0, B)


def test_scores(play):
    result = levels.played(*play, LIMIT)
    best = result.best + 1
    np.testing.assert_array_equal(levels.max_monte_carlo(result, best), best - result.value)
    np.testing.assert_array_equal(levels.positive_value_loss(result, best), result.gain)
    np.testing.assert_array_equal(levels.learnability(result, LIMIT), result.solved * (1 - result.solved))
    np.testing.assert_array_equal(levels.learnability(result, None), result.variance)
    np.testing.assert_array_equal(levels.regret(result, result._replace(mean=best)), 0.0)
    assert levels.regret(result, result._replace(mean=best - 2)).min() == pytest.approx(1, abs=1e-5)


def test_variance_of_returns_of_0_and_1_is_learnability():
    reward = (np.random.default_rng(1).random((T, B)) < 0.3).astype(np.float32)
    result = levels.played(reward, np.ones((T, B), bool), reward, reward, 0.5)
    np.testing.assert_allclose(levels.learnability(result, 0.5), levels.learnability(result, None), atol=1e-6)


def test_without_a_limit_nothing_is_solved(play):
    assert not jnp.any(levels.played(*play, None).solved)
