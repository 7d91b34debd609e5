"""What a policy returns that few episodes choose: by hand, against all that can happen, and what must not change it."""

import itertools
import math

import numpy as np
import pytest

from purerl.formulas import policy_choice


def every_outcome(returns, values, pulls):
    """What the chosen policy returns after so many pulls: the mean over all orders and draws, and their deviation."""
    arms, episodes = len(returns), len(returns[0])
    spread = math.sqrt(sum(np.var(row) for row in returns) / arms)
    outcomes = []
    for order in itertools.permutations(range(arms)):
        for draws in itertools.product(range(episodes), repeat=pulls):
            seen = {arm: [] for arm in order}
            for done, draw in enumerate(draws):
                waiting = [arm for arm in order if not seen[arm]]
                bound = lambda arm, done=done, seen=seen: (
                    sum(seen[arm]) / len(seen[arm]) + spread * math.sqrt(2 * math.log(done) / len(seen[arm]))
                )
                arm = waiting[0] if waiting else max(order, key=bound)
                seen[arm].append(returns[arm][draw])
            outcomes.append(values[max((arm for arm in order if seen[arm]), key=lambda arm: np.mean(seen[arm]))])
    return np.mean(outcomes), np.std(outcomes)


def test_by_hand():
    """Three policies that always return the same: any, then the better of any two, then the best."""
    returns = np.array([[0.0], [1.0], [3.0]])
    value, low, high = policy_choice.estimate(returns, returns[:, 0], 3, (1, 2, 3, 10))
    np.testing.assert_allclose(value, [4 / 3, 7 / 3, 3, 3], atol=4 * 1.3 / math.sqrt(20_000))
    assert np.isnan(low).all() and np.isnan(high).all()
    value, *_ = policy_choice.estimate(returns, returns[:, 0], 1, (1, 500))  # nothing to choose among
    np.testing.assert_allclose(value, 4 / 3, atol=4 * 1.3 / math.sqrt(20_000))


def test_against_all_that_can_happen():
    """Values are those of other episodes: here the policy that looks worse is the better one."""
    returns, values, episodes = [[0.0, 4.0, 1.0], [1.5, 2.5, 3.5]], [5.0, 2.0], (1, 2, 3, 4, 5, 6)
    value, *_ = policy_choice.estimate(returns, values, 2, episodes)
    expected, deviations = zip(*(every_outcome(returns, values, n) for n in episodes), strict=True)
    assert np.all(np.abs(value - expected) < 4 * np.array(deviations) / math.sqrt(20_000))
    assert np.ptp(expected) > 0.5


def test_who_was_never_pulled_is_not_chosen():
    """In unifloral's script the mean of a policy without a pull is 0, above all that have negative returns."""
    rng = np.random.default_rng(0)
    arms = rng.permuted(np.tile(np.arange(4), (50, 1)), axis=1)
    chosen = policy_choice.chosen(np.full((4, 2), [-3.0, -1.0]), arms, (1, 2), 1.0, rng)
    np.testing.assert_array_equal(chosen[:, 0], arms[:, 0])
    assert np.all((chosen[:, 1] == arms[:, 0]) | (chosen[:, 1] == arms[:, 1]))


def test_units_of_the_reward_do_not_matter():
    rng = np.random.default_rng(1)
    returns, values = rng.normal(size=(12, 30)) + rng.normal(size=(12, 1)), rng.normal(size=12)
    one = policy_choice.estimate(returns, values, 8, (1, 5, 20, 50))
    other = policy_choice.estimate(1000 * returns - 700, 1000 * values - 700, 8, (1, 5, 20, 50))
    np.testing.assert_allclose(other, 1000 * np.array(one) - 700, rtol=1e-9)


def test_the_interval_is_that_of_the_policies():
    """Of a choice among one it is that of the mean of all policies, and more episodes do not make it narrower."""
    rng = np.random.default_rng(2)
    values = rng.normal(size=25)
    for returns in (values[:, None], np.repeat(values[:, None], 40, axis=1)):
        value, low, high = policy_choice.estimate(returns, values, 1, (1, 20), resamples=400)
        width = 2 * 1.96 * values.std() / math.sqrt(25)
        assert np.all((low < value) & (value < high)) and np.all(np.abs((high - low) / width - 1) < 0.3)
    assert policy_choice.deviation([[1.0, 3.0], [5.0, 5.0]]) == math.sqrt(0.5)


@pytest.mark.parametrize("returns", [np.zeros((0, 3)), np.zeros((2, 0)), np.full((2, 3), np.nan), np.zeros((3, 3))])
def test_what_is_refused(returns):
    with pytest.raises(ValueError, match=r"must be"):
        policy_choice.estimate(returns, np.zeros(2), 2)
