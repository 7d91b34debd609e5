"""AlphaStar's matchmaking by hand, and what says that an exploiter has done its work."""

import jax.numpy as jnp
import numpy as np
import pytest

from purerl.formulas import league, opponents

ME, EXPLOITER = 0, 1
RATES = np.array([0.5, 0.5, 0.9, 0.4, 0.8, 0.1])
"""Against itself and an exploiter, who learn; two versions of itself, and two of the exploiter."""
KEPT = np.array([False, False, True, True, True, True])
OWN = np.array([False, False, True, True, False, False])
OF_EXPLOITER = KEPT & ~OWN


def masks(*rows):
    return [jnp.asarray(row) for row in rows]


def test_main_agent():
    """Half by (1 - w)^2 over all versions; 0.15 over the one it forgot and the strong exploiter; 0.35 itself."""
    hard = np.where(KEPT, (1 - RATES) ** 2, 0)
    missed = np.array([0, 0, 0, 0.36, 0, 0.81])
    expected = 0.5 * hard / hard.sum() + 0.15 * missed / missed.sum()
    expected[ME] += 0.35
    result = league.main_agent(*masks(RATES, KEPT, OWN, OF_EXPLOITER), ME)
    np.testing.assert_allclose(result, expected, rtol=1e-5)
    beaten = np.where(KEPT, 0.75, RATES)
    result = league.main_agent(*masks(beaten, KEPT, OWN, OF_EXPLOITER), ME)
    np.testing.assert_allclose(result, [0.5, 0, *[0.125] * 4], rtol=1e-5)


@pytest.mark.parametrize(("rate", "half"), [(0.19, True), (0.21, False)])
def test_main_exploiter(rate, half):
    """The main agent; half of the time a version of it by w (1 - w), while it wins less than a fifth of its games."""
    rates = np.where(np.arange(6) == ME, rate, RATES)
    variance = np.array([0, 0, 0.09, 0.24, 0, 0]) / 0.33
    newest = np.arange(6) == ME
    result = league.main_exploiter(*masks(rates, OWN), ME)
    np.testing.assert_allclose(result, (newest + variance) / 2 if half else newest, rtol=1e-5)
    np.testing.assert_array_equal(league.main_exploiter(*masks(rates, OWN & False), ME), newest)


def test_league_exploiter():
    capped = np.array([0, 0, 0.1, 0.5, 0.2, 0.5]) / 1.3
    np.testing.assert_allclose(league.league_exploiter(*masks(RATES, KEPT)), capped, rtol=1e-5)


def test_who_has_beaten_its_rivals():
    rates, games = np.array([0.2, 0.71, 0.9]), np.array([99.0, 30.0, 30.0])
    rivals = np.array([False, True, True])
    assert league.beats(*masks(rates, games, rivals))
    for changed in (
        (np.array([0.2, 0.7, 0.9]), games, rivals),
        (rates, np.array([99.0, 30.0, 29.0]), rivals),
        (rates, games, ~rivals),
        (rates, games, rivals & False),
    ):
        assert not league.beats(*masks(*changed))


def test_a_record_of_many_games():
    """One game after another, of which some do not count; nobody plays itself."""
    rng = np.random.default_rng(1)
    score, counts = rng.choice([0.0, 0.5, 1.0], 20).astype(np.float32), rng.random(20) < 0.6
    before = opponents.Payoff(*jnp.asarray(rng.uniform(1, 9, (2, 4, 4)), jnp.float32))
    expected = before
    for points in score[counts]:
        expected = opponents.record(expected, jnp.int32(1), jnp.int32(3), points)
    result = opponents.record_all(before, jnp.int32(1), jnp.int32(3), *masks(score, counts))
    np.testing.assert_allclose(result.score, expected.score, rtol=1e-5)
    np.testing.assert_allclose(result.games, expected.games, rtol=1e-5)
    alone = opponents.record_all(before, jnp.int32(2), jnp.int32(2), *masks(score, counts))
    np.testing.assert_array_equal(alone.games, before.games)
    np.testing.assert_array_equal(alone.score, before.score)
