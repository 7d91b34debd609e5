"""Choice of opponents against closed forms, a record kept in numpy, and the frequencies of what is drawn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from purerl.formulas import opponents

RATES = jnp.array([0.9, 0.7, 0.5, 0.2])


def test_a_record_of_games():
    """Against sums over each pair's games, the latest with weight 1, the one before with 0.99, and so on."""
    rng = np.random.default_rng(0)
    games = [(*rng.choice(4, 2, replace=False), rng.choice([0.0, 0.5, 1.0])) for _ in range(60)]
    games = [game for game in games if set(game[:2]) != {0, 3}]
    payoff = opponents.no_games(4)
    for i, j, score in games:
        payoff = opponents.record(payoff, jnp.int32(i), jnp.int32(j), score)
    rates = opponents.win_rates(payoff)
    for i in range(4):
        for j in set(range(4)) - {i}:
            met = [score if a == i else 1 - score for a, b, score in games if {a, b} == {i, j}]
            weight = 0.99 ** np.arange(len(met))[::-1]
            np.testing.assert_allclose(payoff.games[i, j], weight.sum(), rtol=1e-5)
            np.testing.assert_allclose(rates[i, j], weight @ met / weight.sum() if met else 0.5, rtol=1e-5)
    assert rates[0, 3] == rates[3, 0] == 0.5 and np.all(np.diag(rates) == 0.5)
    np.testing.assert_allclose(rates + rates.T, 1.0, atol=1e-6)


@pytest.mark.parametrize(
    ("weighting", "expected"),
    [
        (opponents.hard, [0.010, 0.091, 0.253, 0.646]),
        (opponents.variance, [0.127, 0.296, 0.352, 0.225]),
        (opponents.linear, [1 / 17, 3 / 17, 5 / 17, 8 / 17]),
        (opponents.capped, [1 / 14, 3 / 14, 5 / 14, 5 / 14]),
    ],
)
def test_prioritised_fictitious_self_play(weighting, expected):
    np.testing.assert_allclose(opponents.shares(weighting(RATES)), expected, atol=6e-4)
    present = jnp.array([True, False, True, False])
    left = np.array(expected) * np.asarray(present)
    np.testing.assert_allclose(opponents.shares(weighting(RATES), present), left / left.sum(), atol=2e-3)


def test_hard_has_a_power():
    np.testing.assert_allclose(opponents.hard(RATES, 1.0), opponents.linear(RATES))
    np.testing.assert_array_equal(opponents.hard(RATES, 0.0), 1.0)


def test_weights_that_are_all_zero():
    beaten = opponents.hard(jnp.ones(4))
    np.testing.assert_array_equal(opponents.shares(beaten), 0.25)
    np.testing.assert_array_equal(opponents.shares(beaten, jnp.array([True, True, False, False])), [0.5, 0.5, 0, 0])
    np.testing.assert_array_equal(opponents.shares(RATES, jnp.zeros(4, bool)), 0.0)


def test_qualities():
    """The rule in float64: the softmax of those that are there, the fall after a win, the entry at the top."""
    quality, present = np.array([0.3, -1.2, 5.0, 0.9]), np.array([True, True, False, True])
    odds = np.exp(quality) * present
    chance = odds / odds.sum()
    there = jnp.float32(quality), jnp.asarray(present)
    np.testing.assert_allclose(opponents.by_quality(*there), chance, rtol=1e-5)
    for opponent in (0, 1, 3):
        expected = quality - np.eye(4)[opponent] * 0.01 / (3 * chance[opponent])
        won = opponents.beaten(*there, jnp.int32(opponent), jnp.bool_(True))
        np.testing.assert_allclose(won, expected, rtol=1e-5)
        np.testing.assert_array_equal(opponents.beaten(*there, jnp.int32(opponent), jnp.bool_(False)), there[0])
    np.testing.assert_array_equal(opponents.beaten(*there, jnp.int32(2), jnp.bool_(True)), there[0])
    entered, now = opponents.enter(*there, jnp.int32(2))
    np.testing.assert_allclose(entered, [0.3, -1.2, 0.9, 0.9], rtol=1e-6)
    assert np.all(now)
    first, now = opponents.enter(jnp.full(4, 7.0), jnp.zeros(4, bool), jnp.int32(1))
    assert first[1] == 0.0 and np.asarray(now).tolist() == [False, True, False, False]


def test_qualities_fall_alike_in_expectation():
    """Versions that always lose are chosen as ``p``; the mean fall of each is ``rate / N``, whatever its ``p``."""
    quality, present = jnp.array([2.0, 0.0, -1.0]), jnp.ones(3, bool)
    falls = jax.vmap(lambda i: quality - opponents.beaten(quality, present, i, jnp.bool_(True)))(jnp.arange(3))
    mean = np.asarray(opponents.by_quality(quality, present)) @ np.asarray(falls)
    np.testing.assert_allclose(mean, 0.01 / 3, rtol=1e-4)


@pytest.mark.parametrize("weight", [[1, 2, 3, 4], [0, 1, 0, 5], [0, 0, 1, 0], [1e-3, 1, 1, 0]])
def test_frequencies(weight, key):
    probability = opponents.shares(jnp.float32(weight))
    noise = jax.random.uniform(key, (40_000,))
    drawn = jax.vmap(lambda x: opponents.choose(probability, x))(noise)
    counts, expected = np.bincount(drawn, minlength=4), np.asarray(probability, np.float64)
    assert drawn.dtype == jnp.int32 and not np.any(counts[expected == 0])
    where = expected > 0
    if where.sum() > 1:
        expected = expected[where] / expected[where].sum() * len(noise)
        assert scipy.stats.chisquare(counts[where], expected).pvalue > 1e-3


def test_choice_follows_from_the_noise():
    probability = jnp.array([0.0, 0.25, 0.0, 0.75, 0.0])
    noise = jnp.array([0.0, 0.2499, 0.25, 0.9999, 1 - 2.0**-24])
    drawn = jax.vmap(lambda x: opponents.choose(probability, x))(noise)
    np.testing.assert_array_equal(drawn, [1, 1, 3, 3, 3])
    for size in (3, 7, 49, 1000):  # where the cumulative sum misses 1 by rounding
        assert opponents.choose(jnp.full(size, 1 / size), jnp.float32(1 - 2.0**-24)) == size - 1


def test_latest_or_past(key):
    """80 % against the newest version, the rest as the qualities say; all of it where no past version is there."""
    present = jnp.array([True, True, False])
    probability = opponents.by_quality(jnp.array([0.0, 1.0, 2.0]), present)
    noise = jax.random.uniform(key, (40_000, 2))
    drawn = jax.vmap(lambda x: opponents.latest_or_past(probability, x))(noise)
    counts = np.bincount(np.asarray(drawn) + 1, minlength=4)
    assert counts[3] == 0
    expected = np.array([0.8, *(0.2 * np.asarray(probability, np.float64)[:2])])
    assert scipy.stats.chisquare(counts[:3], expected / expected.sum() * len(noise)).pvalue > 1e-3
    alone = jax.vmap(lambda x: opponents.latest_or_past(jnp.zeros(3), x))(noise)
    assert np.all(alone == opponents.LATEST)
