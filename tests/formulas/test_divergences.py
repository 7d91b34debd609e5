"""The E-step against a solver, its dual's minimum, and divergences against numerical integration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
import scipy.stats

from purerl import spaces
from purerl.formulas import distributions, divergences, exploration

RNG = np.random.default_rng(3)
VALUES = RNG.normal(size=5) * 2
PRIOR = RNG.dirichlet(np.ones(5))


def kl(p, q):
    return np.sum(p * np.log(p / q))


@pytest.mark.parametrize("bound", [0.02, 0.3])
def test_e_step_against_a_solver(bound):
    """The primal problem, solved by itself: the largest mean value within the bound. Its weights are those at the
    temperature that minimises the dual, whose minimum is the mean value."""
    primal = scipy.optimize.minimize(
        lambda q: -q @ VALUES,
        PRIOR,
        method="SLSQP",
        bounds=[(1e-9, 1)] * 5,
        constraints=[
            {"type": "eq", "fun": lambda q: q.sum() - 1},
            {"type": "ineq", "fun": lambda q: bound - kl(q, PRIOR)},
        ],
        options={"ftol": 1e-14, "maxiter": 500},
    )
    with jax.enable_x64():
        dual = lambda t: float(divergences.temperature_dual(t, jnp.asarray(VALUES), jnp.log(PRIOR), bound))
        best = scipy.optimize.minimize_scalar(dual, bounds=(1e-3, 1e3), method="bounded", options={"xatol": 1e-10})
        weights = np.asarray(divergences.e_step_weights(jnp.asarray(VALUES), jnp.log(PRIOR), best.x))
        np.testing.assert_allclose(kl(weights, PRIOR), bound, rtol=1e-4)
        np.testing.assert_allclose(divergences.weight_divergence(weights, jnp.log(PRIOR)), bound, rtol=1e-4)
        slope = jax.grad(divergences.temperature_dual)(best.x, jnp.asarray(VALUES), jnp.log(PRIOR), bound)
    np.testing.assert_allclose(weights, primal.x, atol=2e-4)
    np.testing.assert_allclose(best.fun, -primal.fun, rtol=1e-6)
    assert abs(slope) < 1e-4


def test_e_step_of_far_values_and_impossible_actions():
    """Values of any size neither overflow nor divide by 0, and what has no prior has no weight."""
    log_prior = jnp.log(jnp.array([0.5, 0.0, 0.5]))
    for temperature in (1e-8, 1.0, 1e8):
        values = jnp.array([1e6, 2e6, -1e6])
        weights = divergences.e_step_weights(values, log_prior, temperature)
        slope = jax.grad(divergences.temperature_dual)(jnp.float32(temperature), values, log_prior, 0.1)
        assert weights[1] == 0 and np.isfinite(slope) and np.all(np.isfinite(weights))
        np.testing.assert_allclose(jnp.sum(weights), 1.0, rtol=1e-6)
        assert np.isfinite(divergences.weight_divergence(weights, log_prior))


@pytest.mark.parametrize(("divergence", "rises"), [(0.2, True), (0.05, False)])
def test_multipliers_rise_above_the_bound(divergence, rises):
    """And no gradient of theirs reaches the policy."""
    of_both = jax.grad(divergences.multiplier_dual, argnums=(0, 1))(1.5, divergence, 0.1)
    np.testing.assert_allclose(of_both, (0.1 - divergence, 0.0), rtol=1e-5)
    assert (of_both[0] < 0) == rises


def test_divergences_of_a_gaussian_by_integration():
    """Of two dimensions that move, with one of the two parameters old at a time, and one that is a constant."""
    old, new = np.array([0.3, 9.0, -0.5, 0.2, 1.0, -0.7]), np.array([0.6, -9.0, 0.1, -0.3, 2.0, 0.4])
    density = lambda x, mean, log_std: scipy.stats.norm.logpdf(x, mean, np.exp(log_std))

    def one(mean_old, std_old, mean, std):
        integrand = lambda x: (
            np.exp(density(x, mean_old, std_old)) * (density(x, mean_old, std_old) - density(x, mean, std))
        )
        return scipy.integrate.quad(integrand, mean_old - 12 * np.exp(std_old), mean_old + 12 * np.exp(std_old))[0]

    of_mean = sum(one(old[i], old[3 + i], new[i], old[3 + i]) for i in (0, 2))
    of_deviation = sum(one(old[i], old[3 + i], old[i], new[3 + i]) for i in (0, 2))
    moving = divergences.gaussian(np.array([True, False, True]))
    with jax.enable_x64():
        result = moving.between(jnp.asarray(old), jnp.asarray(new))
    np.testing.assert_allclose(result, [of_mean, of_deviation], rtol=1e-8)
    assert moving.names == ("m_step_kl", "m_step_kl_deviation")


def test_divergence_of_numbers_by_sums():
    """Of two independent choices: over all pairs. Masked logits have no share, also in the gradient."""
    with jax.enable_x64():
        old, new = jnp.asarray(RNG.normal(size=(2, 4, 5)))
        illegal = exploration.masked(jnp.stack([old, new]), jnp.array([True, True, True, True, False]))
        between = divergences.for_space(spaces.MultiDiscrete((2, 3))).between
        result, masked = (np.asarray(between(*logits))[:, 0] for logits in ((old, new), illegal))
        slope = jax.grad(lambda new: jnp.sum(between(illegal[0], new)))(illegal[1])
    softmax = lambda x: np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)

    def pairs(logits, count):
        first, second = softmax(np.asarray(logits[:, :2])), softmax(np.asarray(logits[:, 2:count]))
        return (first[:, :, None] * second[:, None]).reshape(4, -1)

    for got, count in ((result, 5), (masked, 4)):
        p, q = pairs(old, count), pairs(new, count)
        np.testing.assert_allclose(got, np.sum(p * np.log(p / q), axis=-1), rtol=1e-8)
    assert np.all(np.isfinite(slope)) and np.all(slope[:, 4] == 0)


@pytest.mark.parametrize(
    "space",
    [spaces.Discrete(3), spaces.MultiDiscrete((2, 3)), spaces.Box((-1.0, 2.0), (3.0, 2.0), (2,), jnp.float32)],
    ids=["Discrete", "MultiDiscrete", "Box"],
)
def test_divergences_are_those_of_the_distributions(space):
    """Means of log-ratios over samples of the space's own distribution; of a Gaussian with one part old at a time."""
    distribution, bounded = distributions.for_space(space), divergences.for_space(space)
    key_old, key_new, key = jax.random.split(jax.random.key(1), 3)
    old, new = (0.5 * jax.random.normal(k, (distribution.num_params,)) for k in (key_old, key_new))
    size = distribution.num_params // 2
    mixed = [new]
    if len(bounded.names) == 2:
        mixed = [jnp.concatenate([new[:size], old[size:]]), jnp.concatenate([old[:size], new[size:]])]
    many = jnp.broadcast_to(old, (400_000, *old.shape))
    action = distribution.sample(many, distribution.noise(key, (400_000,)))
    log_prob = lambda params: distribution.log_prob(jnp.broadcast_to(params, many.shape), action)
    expected = [np.mean(log_prob(old) - log_prob(x)) for x in mixed]
    np.testing.assert_allclose(bounded.between(old, new), expected, rtol=0.03, atol=1e-4)
    np.testing.assert_allclose(bounded.between(old, old), 0.0, atol=1e-7)
