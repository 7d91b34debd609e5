"""Ratings, best responses and Kuhn poker against closed forms, the game tree, and every pure strategy."""

import itertools

import numpy as np
import pytest

from purerl.formulas import games

UNIFORM = np.full((2, 2, 3), 0.5)


def test_elo_of_two():
    """400 log10 of the odds; virtual draws count half to each."""
    score = [[0, 7.5], [2.5, 0]]
    rating = games.elo(score, np.full((2, 2), 10.0))
    np.testing.assert_allclose(rating[0] - rating[1], 400 * np.log10(3), rtol=1e-9)
    rating = games.elo([[0, 3], [0, 0]], [[0, 3], [3, 0]], virtual_draws=2)
    np.testing.assert_allclose(rating[0] - rating[1], 400 * np.log10(4 / 1), rtol=1e-9)


def test_elo_finds_the_ratings_that_made_the_rates():
    rating = np.array([120.0, -80.0, 300.0, -340.0])
    rates = 1 / (1 + 10 ** ((rating[None] - rating[:, None]) / 400))
    np.testing.assert_allclose(games.elo(rates, np.ones((4, 4))), rating, atol=1e-6)


def test_elo_is_most_likely():
    """Everybody's expected score is what they scored, which is the condition of the first order."""
    rng = np.random.default_rng(0)
    played = rng.integers(1, 20, (6, 6))
    played = played + played.T
    score = np.triu(rng.uniform(0, 1, (6, 6)) * played, 1)
    score = score + np.tril(played - score.T, -1)
    rating = games.elo(score, played)
    expected = played / (1 + 10 ** ((rating[None] - rating[:, None]) / 400)) * (1 - np.eye(6))
    np.testing.assert_allclose(expected.sum(axis=1), score.sum(axis=1), atol=1e-6)
    assert abs(rating.mean()) < 1e-9


def test_elo_that_is_infinite():
    with pytest.raises(ValueError, match="virtual_draws"):
        games.elo([[0, 1, 1], [0, 0, 0.5], [0, 0.5, 0]], np.ones((3, 3)))


def test_elo_knows_no_cycle():
    rates = games.ROCK_PAPER_SCISSORS / 2 + 0.5
    np.testing.assert_allclose(games.elo(rates, np.ones((3, 3)), virtual_draws=1), 0.0, atol=1e-9)


def test_nash_conv_of_matrix_games():
    third, rock = np.full(3, 1 / 3), np.eye(3)[0]
    assert games.nash_conv(games.ROCK_PAPER_SCISSORS, third, third) == pytest.approx(0, abs=1e-12)
    assert games.nash_conv(games.ROCK_PAPER_SCISSORS, rock, rock) == 2
    assert games.exploitability(games.ROCK_PAPER_SCISSORS, rock, third) == pytest.approx(0.5)
    pennies = [[2.0, -1.0], [-1.0, 1.0]]  # the equilibrium is 2/5, 3/5 for both, its value 1/5
    mixed = [0.4, 0.6]
    assert games.nash_conv(pennies, mixed, mixed) == pytest.approx(0, abs=1e-12)
    rng = np.random.default_rng(1)
    payoff, row, column = rng.normal(size=(4, 3)), rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(3))
    value = row @ payoff @ column
    gains = max(payoff[i] @ column - value for i in range(4)) + max(value - row @ payoff[:, j] for j in range(3))
    assert games.nash_conv(payoff, row, column) == pytest.approx(gains)


def test_fictitious_play_in_rock_paper_scissors():
    play = games.fictitious_play(games.matrix_responses(games.ROCK_PAPER_SCISSORS), np.eye(3)[0], np.eye(3)[1])
    results = {}
    for count, (row, column) in enumerate(itertools.islice(play, 10_000), 1):
        if count in (100, 1000, 10_000):
            assert row.sum() == pytest.approx(1) and column.sum() == pytest.approx(1)
            results[count] = games.nash_conv(games.ROCK_PAPER_SCISSORS, row, column)
    assert results[100] < 0.25 and results[1000] < 0.08 and results[10_000] < 0.025


def tree_value(policy):
    """What the first seat of Kuhn poker wins, by a walk of the game's tree."""
    (opening, calling), (betting, meeting) = policy
    total = 0.0
    for mine, other in itertools.permutations(range(3), 2):
        sign = 1 if mine > other else -1
        after_bet = meeting[other] * 2 * sign + (1 - meeting[other])
        after_raise = calling[mine] * 2 * sign - (1 - calling[mine])
        after_check = betting[other] * after_raise + (1 - betting[other]) * sign
        total += (opening[mine] * after_bet + (1 - opening[mine]) * after_check) / 6
    return total


def tree_nash_conv(policy):
    """NashConv by trying all 64 pure strategies of each seat."""
    pure = [np.reshape(choice, (2, 3)) for choice in itertools.product((0.0, 1.0), repeat=6)]
    best = max(tree_value([mine, policy[1]]) for mine in pure)
    return best - min(tree_value([policy[0], other]) for other in pure)


@pytest.mark.parametrize("seed", range(5))
def test_kuhn_against_its_tree(seed):
    policy = np.random.default_rng(seed).uniform(size=(2, 2, 3))
    plans = games.kuhn_plans(policy)
    assert games.kuhn_value(plans) == pytest.approx(tree_value(policy), abs=1e-12)
    assert games.kuhn_nash_conv(policy) == pytest.approx(tree_nash_conv(policy), abs=1e-12)
    np.testing.assert_allclose(games.kuhn_policy(plans), policy, atol=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 0.1, 1 / 4, 1 / 3])
def test_kuhn_equilibria(alpha):
    policy = games.kuhn_equilibrium(alpha)
    assert games.kuhn_nash_conv(policy) == pytest.approx(0, abs=1e-12)
    assert games.kuhn_value(games.kuhn_plans(policy)) == pytest.approx(-1 / 18)
    assert games.kuhn_nash_conv(games.kuhn_equilibrium(0.4)) > 0.01


def test_kuhn_uniform():
    assert games.kuhn_value(games.kuhn_plans(UNIFORM)) == pytest.approx(0.125)
    assert games.kuhn_nash_conv(UNIFORM) == pytest.approx(11 / 12)


def test_kuhn_where_a_seat_never_comes():
    policy = np.array([[[1.0, 1.0, 1.0], [0.2, 0.3, 0.4]], [[0.5] * 3, [0.5] * 3]])
    np.testing.assert_array_equal(games.kuhn_policy(games.kuhn_plans(policy))[0, 1], 0.5)


def test_fictitious_play_in_kuhn():
    """Averages by weights of realisation are strategies, and come close to an equilibrium.

    On the way the rule for responses that are equally good matters: after 10 rounds by 0.02.
    """
    expected = {10: (0.152, 0.03), 50: (0.067, 0.01), 100: (0.043, 0.006), 300: (0.026, 0.003), 1000: (0.014, 0.001)}
    play = games.fictitious_play(games.kuhn_responses, *games.kuhn_plans(UNIFORM))
    for count, averages in enumerate(itertools.islice(play, 1000), 1):
        plans = games.Plans(*averages)
        if count in expected:
            assert games.kuhn_gains(plans) == pytest.approx(expected[count][0], abs=expected[count][1])
            np.testing.assert_allclose([plans.second[:, :2].sum(axis=1), plans.second[:, 2:].sum(axis=1)], 1)
            np.testing.assert_allclose(plans.first[:, 2:].sum(axis=1), plans.first[:, 1], atol=1e-12)
    assert games.kuhn_gains(plans) <= 0.02
    assert games.kuhn_nash_conv(games.kuhn_policy(plans)) == pytest.approx(games.kuhn_gains(plans), abs=1e-9)
    assert games.kuhn_value(plans) == pytest.approx(-1 / 18, abs=0.01)


def test_alpha_rank():
    """A cycle is held alike by all, a transitive triple by its top, and two by a ratio in closed form."""
    np.testing.assert_allclose(games.alpha_rank(games.ROCK_PAPER_SCISSORS), 1 / 3, rtol=1e-9)
    transitive = np.array([[0, 1, 1], [-1, 0, 1], [-1, -1, 0]])
    np.testing.assert_allclose(games.alpha_rank(transitive), [1, 0, 0], atol=1e-9)
    np.testing.assert_allclose(games.alpha_rank(transitive, alpha=1e4), [1, 0, 0], atol=1e-9)
    np.testing.assert_allclose(games.alpha_rank(np.zeros((4, 4))), 0.25)
    ranks = games.alpha_rank([[0.0, 0.3], [-0.2, 0.0]], alpha=0.1, population=20)
    assert ranks[0] / ranks[1] == pytest.approx(np.exp(19 * 0.1 * 0.5))


def test_alpha_rank_against_a_chain():
    """The process in float64 at a moderate alpha, until it has settled."""
    payoff, size, alpha, population = np.random.default_rng(2).normal(size=(5, 5)), 5, 0.05, 10
    move = np.zeros((size, size))
    for i, j in itertools.permutations(range(size), 2):
        u = alpha * (payoff[j, i] - payoff[i, j])
        move[i, j] = (1 - np.exp(-u)) / (1 - np.exp(-population * u)) / (size - 1)
    move += np.diag(1 - move.sum(axis=1))
    settled = np.linalg.matrix_power(move, 10_000)[0]
    np.testing.assert_allclose(games.alpha_rank(payoff, alpha, population), settled, rtol=1e-6)
