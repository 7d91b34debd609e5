"""Novelty, its schedules and the bandit against definitions written out in numpy float64."""

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

from purerl.formulas import bandits, novelty, td_errors


@pytest.mark.parametrize("num_stored", [0, 1, 4, 5, 20])
def test_bonus_of_neighbours_against_definition(num_stored):
    """Places of the memory that hold nothing are no neighbours, though they lie nearest of all."""
    rng = np.random.default_rng(num_stored)
    x, memory = 0.1 * rng.normal(size=3), rng.normal(size=(20, 3))
    stored = np.where(np.arange(20)[:, None] < num_stored, memory, x)
    mean = 0.3
    distance, real = novelty.nearest(jnp.float32(stored), jnp.arange(20) < num_stored, jnp.float32(x), 5)
    assert np.sum(real) == min(num_stored, 5)
    for epsilon, cluster in ((1e-4, 8e-3), (0.5, 3.0)):
        result = novelty.episodic_bonus(distance, real, mean, epsilon, cluster)
        expected = oracles.episodic_bonus(memory[:num_stored], x, 5, mean, epsilon, cluster)
        np.testing.assert_allclose(result, expected, rtol=1e-4)


def test_bonus_at_its_ends():
    """All new: 1 / (sqrt(K epsilon) + c). Ten times the same: 1 / (sqrt(10) + c). Beyond 8: nothing."""
    nothing = jnp.zeros(10, bool)
    bonus = lambda num, real: float(novelty.episodic_bonus(jnp.zeros(num), jnp.full(num, real), 0.0))
    np.testing.assert_allclose(novelty.episodic_bonus(jnp.zeros(10), nothing, 1.0), 1 / (1e-3**0.5 + 1e-3), rtol=1e-5)
    np.testing.assert_allclose([bonus(10, True), bonus(70, True)], [1 / (10**0.5 + 1e-3), 0.0], rtol=1e-5)


def test_modulator_and_what_becomes_of_it():
    error = np.array([0.0, 1.0, 3.0, 30.0])
    alpha = novelty.modulator(jnp.float32(error), jnp.float32(1.0), jnp.float32(2.0))
    np.testing.assert_allclose(alpha, 1 + (error - 1) / 2)
    np.testing.assert_allclose(novelty.modulated(jnp.float32(10.0), alpha), [10, 10, 20, 50])
    np.testing.assert_allclose(novelty.lifelong_bonus(alpha), [0, 0, 1, 5])


def test_schedules_of_never_give_up():
    beta, gamma = np.asarray(novelty.betas(32, 0.3)), np.asarray(novelty.gammas(32, 0.997, 0.99))
    sigmoid = lambda x: 1 / (1 + np.exp(-x))
    expected = [0.0, *(0.3 * sigmoid(10 * (2 * j - 30) / 30) for j in range(1, 31)), 0.3]
    np.testing.assert_allclose(beta, expected, rtol=1e-5)
    np.testing.assert_allclose(beta[[8, 15, 16, 31]], [2.8e-3, 0.15, 0.198, 0.3], rtol=3e-3)
    expected = [1 - np.exp(((31 - j) * np.log(0.003) + j * np.log(0.01)) / 31) for j in range(32)]
    np.testing.assert_allclose(gamma, expected, rtol=1e-6)
    np.testing.assert_allclose(gamma[[0, 16, 31]], [0.997, 0.99442, 0.99], atol=5e-6)
    np.testing.assert_allclose(novelty.betas(2, 0.3), [0, 0.3], rtol=1e-6)


@pytest.mark.parametrize("num", [4, 5, 8, 11, 16, 32])
def test_wide_discounts_never_rise(num):
    gamma = np.asarray(novelty.wide_gammas(num, 0.9999, 0.997, 0.99))
    assert gamma.shape == (num,) and np.all(np.diff(gamma) <= 0)
    np.testing.assert_allclose(gamma[[0, -1]], [0.9999, 0.99], rtol=1e-6)
    if num == 32:
        sigmoid = lambda x: 1 / (1 + np.exp(-x))
        first = [0.9999, *(0.9999 + (0.997 - 0.9999) * sigmoid(10 * (2 * j - 6) / 6) for j in range(1, 7)), 0.997]
        rest = [1 - np.exp(((23 - (j - 8)) * np.log(0.003) + (j - 8) * np.log(0.01)) / 23) for j in range(8, 32)]
        np.testing.assert_allclose(gamma, [*first, *rest], rtol=1e-6)


def test_sums_under_the_rescaling():
    """With beta 0 the extrinsic value; without h's epsilon, of positive values, by the square that undoes a root."""
    q_e, q_i = np.array([-2.0, 0.5, 3.0]), np.array([1.0, 2.0, 0.1])
    np.testing.assert_allclose(td_errors.joined(jnp.float32(q_e), jnp.float32(q_i), 0.0), q_e, rtol=1e-5)
    h = lambda x: np.sign(x) * (np.sqrt(abs(x) + 1) - 1)
    back = lambda x: np.sign(x) * ((abs(x) + 1) ** 2 - 1)
    result = td_errors.joined(jnp.float32(q_e), jnp.float32(q_i), 0.3, 0.0)
    np.testing.assert_allclose(result, h(back(q_e) + 0.3 * back(q_i)), rtol=1e-5)


def pulled(window, arms, rewards):
    pulls = bandits.init(window)
    for arm, reward in zip(arms, rewards, strict=True):
        pulls = bandits.record(pulls, jnp.int32(arm), jnp.float32(reward))
    return pulls


def test_bounds_over_the_window_against_counting():
    rng = np.random.default_rng(0)
    for num in (0, 3, 7, 40):
        arms, rewards = rng.integers(4, size=num), rng.normal(size=num)
        result = bandits.bounds(pulled(7, arms, rewards), 4, 0.5)
        for arm in range(4):
            own = rewards[-7:][arms[-7:] == arm] if num else []
            expected = np.mean(own) + 0.5 / len(own) ** 0.5 if len(own) else np.inf
            np.testing.assert_allclose(result[arm], expected, rtol=1e-5)


def test_what_left_the_window_counts_no_more():
    """One pull, then one more than the window holds elsewhere: the arm counts as never pulled, and comes next."""
    pulls = pulled(5, [3] + [0] * 6, [9.0] + [1.0] * 6)
    np.testing.assert_array_equal(bandits.statistics(pulls, 4)[0], [5, 0, 0, 0])
    assert bandits.choose(pulls, 4, 1.0, 0.0, jnp.array([0.5, 0.0])) == 1


def test_each_arm_comes_once_and_then_the_best_or_any():
    choose = lambda pulls, noise: int(bandits.choose(pulls, 3, 0.1, 0.5, jnp.array(noise), 2))
    arms = []
    for _ in range(3):
        arms.append(choose(pulled(9, arms, [0.0] * len(arms)), [0.0, 0.0]))
    assert arms == [2, 0, 1]
    pulls = pulled(9, [0, 1, 2], [0.0, 2.0, 1.0])
    assert [choose(pulls, [0.6, 0.0]), choose(pulls, [0.4, 0.99]), choose(pulls, [0.4, 0.1])] == [1, 2, 0]


@pytest.mark.weekly
def test_a_window_follows_a_switch():
    """The best of 8 arms is another one from pull 1000 of 2000 on; nine in ten greedy pulls after that find it."""

    def play(window, key):
        def pull(pulls, inputs):
            number, key = inputs
            best, noise = jnp.where(number < 1000, 2, 5), jax.random.uniform(key, (3,))
            arm = bandits.choose(pulls, 8, 1.0, 0.5, noise[:2])
            reward = (arm == best) + 0.3 * jax.scipy.special.ndtri(noise[2])
            return bandits.record(pulls, arm, reward), (noise[0] >= 0.5, arm == best)

        inputs = jnp.arange(2000), jax.random.split(key, 2000)
        greedy, right = jax.lax.scan(pull, bandits.init(window), inputs)[1]
        return jnp.sum(greedy & right & (jnp.arange(2000) >= 1000)) / jnp.sum(greedy & (jnp.arange(2000) >= 1000))

    keys = jax.random.split(jax.random.key(0), 8)
    short, endless = (np.asarray(jax.jit(jax.vmap(lambda key, w=w: play(w, key)))(keys)) for w in (90, 2000))
    assert short.mean() >= 0.9 and endless.mean() <= 0.5
