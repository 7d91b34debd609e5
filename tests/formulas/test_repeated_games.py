"""Repeated games against sums over rounds and finite differences, in numpy's float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl.formulas import repeated_games

GAMMA = 0.96
DILEMMA = np.array([[-1.0, -3.0, 0.0, -2.0], [-1.0, 0.0, -3.0, -2.0]])
PENNIES = np.array([[1.0, -1.0, -1.0, 1.0], [-1.0, 1.0, 1.0, -1.0]])
LARGE = 30.0
ALL_DEFECT = np.full(5, -LARGE)
ALL_COOPERATE = np.full(5, LARGE)
TIT_FOR_TAT = LARGE * np.array([1, 1, -1, 1, -1])


def play(own, other, payoffs, gamma=GAMMA, rounds=1500):
    """Values ``[2]``: the two players told apart, each remembering ``(its own action, the other's)``."""
    probability = [1 / (1 + np.exp(-np.asarray(logits, np.float64))) for logits in (own, other)]
    outcomes = {None: 1.0}
    total = np.zeros(2)
    for t in range(rounds):
        following = dict.fromkeys(["CC", "CD", "DC", "DD"], 0.0)
        for last, weight in outcomes.items():
            places = (0, 0) if last is None else [1 + ["CC", "CD", "DC", "DD"].index(x) for x in (last, last[::-1])]
            first, second = (p[i] for p, i in zip(probability, places, strict=True))
            for now in following:
                one = first if now[0] == "C" else 1 - first
                two = second if now[1] == "C" else 1 - second
                following[now] += weight * one * two
        outcomes = following
        total += gamma**t * payoffs @ np.array(list(outcomes.values()))
    return total


def slope(function, x, h=1e-5):
    """The gradient by central differences."""
    return np.array([(function(x + h * row) - function(x - h * row)) / (2 * h) for row in np.eye(len(x))])


@pytest.fixture(scope="module")
def pairs():
    return np.random.default_rng(0).normal(size=(6, 2, 5)) * 1.5


@pytest.mark.parametrize("payoffs", [DILEMMA, PENNIES])
def test_values_are_sums_over_rounds(payoffs, pairs):
    run = jax.jit(jax.vmap(lambda pair: repeated_games.values(*pair, jnp.asarray(payoffs), GAMMA)))
    expected = [play(*pair, payoffs) for pair in pairs]
    np.testing.assert_allclose(run(pairs), expected, rtol=2e-5, atol=2e-5)
    visits = jax.jit(jax.vmap(lambda pair: repeated_games.visits(*pair, GAMMA)))(pairs)
    np.testing.assert_allclose(visits.sum(axis=1), 1 / (1 - GAMMA), rtol=1e-5)


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        (ALL_DEFECT, TIT_FOR_TAT, (-1.92, -2.04)),  # and 0, -3 if both read CD as the same outcome
        (TIT_FOR_TAT, ALL_DEFECT, (-2.04, -1.92)),
        (TIT_FOR_TAT, TIT_FOR_TAT, (-1, -1)),
        (ALL_DEFECT, ALL_COOPERATE, (0, -3)),
        (ALL_DEFECT, ALL_DEFECT, (-2, -2)),
    ],
)
def test_fixed_strategies_in_closed_form(own, other, expected):
    result = repeated_games.values(jnp.asarray(own), jnp.asarray(other), jnp.asarray(DILEMMA), GAMMA)
    np.testing.assert_allclose((1 - GAMMA) * result, expected, atol=1e-5)


@pytest.mark.rest
def test_a_naive_learner_ascends_its_value(pairs):
    for own, other in pairs[:3]:
        expected = own + 0.5 * slope(lambda x, other=other: play(x, other, DILEMMA, rounds=800)[0], own)
        result = repeated_games.naive_step(jnp.asarray(own), jnp.asarray(other), jnp.asarray(DILEMMA), GAMMA, 0.5)
        np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.rest
@pytest.mark.parametrize("both_factors", [True, False])
def test_lola_looks_ahead(both_factors, pairs):
    """With both factors it is the gradient of the product; without, the first stays that of now."""
    own, other = pairs[0] / 2
    short = lambda x, y: play(x, y, DILEMMA, gamma=0.5, rounds=40)
    now = slope(lambda y: short(own, y)[0], other)

    def ahead(x):
        mine, theirs = (slope(lambda y, i=i: short(x, y)[i], other) for i in (0, 1))
        return short(x, other)[0] + 0.7 * (mine if both_factors else now) @ theirs

    expected = own + 0.7 * slope(ahead, own, 1e-3)
    given = jnp.asarray(own), jnp.asarray(other), jnp.asarray(DILEMMA), 0.5, 0.7, both_factors
    np.testing.assert_allclose(repeated_games.lola_step(*given), expected, rtol=1e-3, atol=1e-3)


def test_elimination(pairs):
    """Columns, or rows, that are diagonally dominant."""
    matrix = np.random.default_rng(1).uniform(-1, 1, (5, 5)) + 6 * np.eye(5)
    for each in (matrix, matrix.T):
        result = repeated_games.solve(jnp.asarray(each), jnp.asarray(pairs[0, 0]))
        np.testing.assert_allclose(result, np.linalg.solve(each, pairs[0, 0]), rtol=1e-4, atol=1e-5)
