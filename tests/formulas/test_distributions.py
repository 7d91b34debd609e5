"""Distributions against scipy in float64, and samples against what they should follow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from purerl import spaces
from purerl.formulas import distributions, exploration
from purerl.spaces import Box, Discrete, MultiDiscrete


def test_categorical_formulas():
    logits = np.random.default_rng(0).normal(size=(6, 5)) * 3
    action = np.arange(6) % 5
    probs = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    dist = distributions.categorical(5)
    np.testing.assert_allclose(
        dist.log_prob(jnp.asarray(logits), jnp.asarray(action)), np.log(probs[range(6), action]), rtol=1e-5
    )
    np.testing.assert_allclose(dist.entropy(jnp.asarray(logits)), scipy.stats.entropy(probs, axis=-1), rtol=1e-5)
    np.testing.assert_array_equal(dist.mode(jnp.asarray(logits)), probs.argmax(axis=-1))


def test_categorical_samples(key):
    probs = np.array([0.5, 0.3, 0.15, 0.05])
    for num_actions in (4, 2):
        p = probs[:num_actions] / probs[:num_actions].sum()
        dist = distributions.categorical(num_actions)
        logits = jnp.broadcast_to(jnp.log(p), (20_000, num_actions))
        sample = dist.sample(logits, dist.noise(key, (20_000,)))
        counts = np.bincount(sample, minlength=num_actions)
        assert sample.dtype == jnp.int32
        assert scipy.stats.chisquare(counts, 20_000 * p).pvalue > 1e-3


def test_categorical_extreme_logits():
    dist = distributions.categorical(3)
    logits = jnp.array([[1e4, 0.0, -1e4]])
    assert dist.entropy(logits)[0] == 0
    assert dist.log_prob(logits, jnp.array([0]))[0] == 0
    assert np.all(np.isfinite(jax.grad(lambda x: dist.entropy(x).sum())(logits)))


def test_gaussian_formulas():
    """In the Box's own units the distribution is Normal(centre + scale * mean, scale * std)."""
    box = Box(np.array([-2.0, 0.0]), np.array([2.0, 10.0]), (2,), np.float32)
    mean, log_std, action = np.random.default_rng(1).normal(size=(3, 7, 2))
    normal = scipy.stats.norm(np.array([0, 5]) + np.array([2, 5]) * mean, np.array([2, 5]) * np.exp(log_std))
    dist, params = distributions.gaussian(box), jnp.concatenate([mean, log_std], axis=-1)
    np.testing.assert_allclose(dist.log_prob(params, jnp.asarray(action)), normal.logpdf(action).sum(-1), rtol=1e-5)
    np.testing.assert_allclose(dist.entropy(params), normal.entropy().sum(-1), rtol=1e-5)
    np.testing.assert_allclose(dist.mode(params), normal.mean(), rtol=1e-5)


@pytest.mark.rest
def test_constant_dimensions_have_no_share(key):
    """A dimension with equal bounds is that number; all else is as without it."""
    low, high = np.array([-2.0, 3.0, 0.0]), np.array([2.0, 3.0, 10.0])
    dist = distributions.gaussian(Box(low, high, (3,), np.float32))
    without = distributions.gaussian(Box(low[[0, 2]], high[[0, 2]], (2,), np.float32))
    params = jax.random.normal(key, (5, 6))
    noise = dist.noise(key, (5,))
    action, free = dist.sample(params, noise), params[:, np.array([0, 2, 3, 5])]
    np.testing.assert_array_equal(action[:, 1], 3.0)
    np.testing.assert_array_equal(dist.mode(params)[:, 1], 3.0)
    np.testing.assert_allclose(dist.log_prob(params, action), without.log_prob(free, action[:, ::2]), rtol=1e-5)
    np.testing.assert_allclose(dist.entropy(params), without.entropy(free), rtol=1e-5)
    slope = jax.grad(lambda p: jnp.sum(dist.log_prob(p, action) + dist.entropy(p)))(params)
    assert np.all(np.isfinite(slope)) and not np.any(slope[:, np.array([1, 4])])
    still = distributions.gaussian(Box(2.0, 2.0, (2,), np.float32))
    np.testing.assert_array_equal(still.log_prob(params[:, :4], jnp.full((5, 2), 2.0)), 0.0)


def test_gaussian_samples(key):
    box = Box(-np.inf, np.inf, (1,), np.float32)
    dist = distributions.gaussian(box)
    params = jnp.broadcast_to(jnp.array([0.5, np.log(2.0)]), (20_000, 2))
    sample = dist.sample(params, dist.noise(key, (20_000,)))
    assert sample.shape == (20_000, 1)
    assert scipy.stats.kstest(np.asarray(sample)[:, 0], scipy.stats.norm(0.5, 2).cdf).pvalue > 1e-3


def test_gaussian_over_a_matrix(key):
    box = Box(-1.0, 1.0, (2, 3), np.float32)
    dist = distributions.for_space(box)
    params = jax.random.normal(key, (5, dist.num_params))
    action = dist.sample(params, dist.noise(key, (5,)))
    assert action.shape == (5, 2, 3)
    assert dist.log_prob(params, action).shape == (5,)


def test_for_space():
    assert distributions.for_space(Discrete(3)).num_params == 3
    assert distributions.for_space(Box(-1.0, 1.0, (4,), np.float32)).num_params == 8


def test_epsilon_greedy(key):
    """An action has the chance epsilon / A, and the best one 1 - epsilon more; at both ends there is no doubt."""
    q = jnp.broadcast_to(jnp.array([0.3, 2.0, -1.0]), (30_000, 3))
    noise = jax.random.uniform(key, (30_000, 2))
    counts = np.bincount(exploration.epsilon_greedy(q, 0.3, noise), minlength=3)
    assert scipy.stats.chisquare(counts, 30_000 * np.array([0.1, 0.8, 0.1])).pvalue > 1e-3
    np.testing.assert_array_equal(exploration.epsilon_greedy(q, 0.0, noise), 1)
    counts = np.bincount(exploration.epsilon_greedy(q, 1.0, noise), minlength=3)
    assert scipy.stats.chisquare(counts).pvalue > 1e-3
    most = jnp.full((1, 2), np.nextafter(np.float32(1), np.float32(0)))
    assert exploration.epsilon_greedy(jnp.arange(3.0)[None], 1.0, most) == 2
    each = exploration.epsilon_greedy(q[:2], jnp.array([0.0, 1.0]), jnp.zeros((2, 2)))
    assert each.dtype == jnp.int32 and each.tolist() == [1, 0]


def test_epsilon_ladder():
    """Ape-X's own numbers; the ends are epsilon and its power; epsilon may be zero, traced, or of one environment."""
    ladder = jax.jit(exploration.epsilon_ladder, static_argnums=2)
    result = ladder(0.4, 7.0, 8)
    np.testing.assert_allclose(result, [0.4, 0.16, 0.064, 0.0256, 0.0102, 0.0041, 0.0016, 0.0007], atol=5e-5)
    np.testing.assert_allclose(ladder(0.3, 2.5, 5)[-1], 0.3**3.5, rtol=1e-6)
    np.testing.assert_allclose(result[1:] / result[:-1], 0.4, rtol=1e-5)  # with exponent B - 1 the steps are epsilon
    np.testing.assert_array_equal(ladder(0.4, 7.0, 1), np.float32([0.4]))
    np.testing.assert_array_equal(ladder(0.05, 0.0, 4), np.full(4, 0.05, np.float32))
    np.testing.assert_array_equal(ladder(0.0, 7.0, 4), np.zeros(4))
    np.testing.assert_array_equal(ladder(1.0, 7.0, 4), np.ones(4))
    swept = jax.vmap(exploration.epsilon_ladder, in_axes=(0, None, None))(jnp.array([0.4, 0.0]), 7.0, 8)
    np.testing.assert_allclose(swept, np.stack([result, np.zeros(8)]), rtol=1e-6)


HYBRID = {
    "side": Discrete(3),
    "far": Box(np.array([-2.0, 0.0]), np.array([2.0, 10.0]), (2,), np.float32),
    "gears": Box(np.array([[-1], [2]]), np.array([[1], [3]]), (2, 1), np.int8),
    "more": (MultiDiscrete((2, 2)), Box(-np.inf, np.inf, (), np.float32), Box(False, True, (2,), bool)),
}
"""Its leaves are far, gears, more[0], more[1], more[2], side, and its choices have 3, 2, 2, 2, 2, 2 and 3 values."""


def log_softmax(logits):
    return logits - scipy.special.logsumexp(logits, axis=-1, keepdims=True)


def by_hand(params, action):
    """Log-probability and entropy of a `HYBRID` action: logits first, then three means, then three deviations."""
    logits = np.split(params[:, :16], np.cumsum([3, 2, 2, 2, 2, 2]), axis=-1)
    numbers = [
        *(action["gears"].reshape(-1, 2) - np.array([-1, 2])).T,
        *action["more"][0].T,
        *action["more"][2].T.astype(int),
        action["side"],
    ]
    log_prob, entropy = np.zeros(len(params)), np.zeros(len(params))
    for each, number in zip(logits, numbers, strict=True):
        own = log_softmax(each)
        log_prob += own[np.arange(len(own)), number]
        entropy -= (np.exp(own) * own).sum(-1)
    centre, scale = np.array([0.0, 5.0, 0.0]), np.array([2.0, 5.0, 1.0])
    normal = scipy.stats.norm(centre + scale * params[:, 16:19], scale * np.exp(params[:, 19:]))
    given = np.concatenate([action["far"], action["more"][1][:, None]], axis=-1)
    return log_prob + normal.logpdf(given).sum(-1), entropy + normal.entropy().sum(-1)


def test_joint_formulas(key):
    """Sums over the parts, each with its own parameters, in float64; actions are elements of the tree."""
    dist = distributions.for_space(HYBRID)
    assert (dist.num_params, dist.num_free) == (16 + 2 * 3, 3)
    with jax.enable_x64(True):
        params = jnp.asarray(np.random.default_rng(2).normal(size=(64, 22)))
        action = dist.sample(params, dist.noise(key, (64,)))
        expected = by_hand(np.asarray(params), jax.tree.map(np.asarray, action))
        np.testing.assert_allclose(dist.log_prob(params, action), expected[0], atol=1e-6)
        np.testing.assert_allclose(dist.entropy(params), expected[1], atol=1e-6)
    like = spaces.struct(HYBRID)
    assert jax.tree.structure(action) == jax.tree.structure(like)
    mode = dist.mode(params.astype(jnp.float32))
    for x, leaf in zip(jax.tree.leaves(mode), jax.tree.leaves(like), strict=True):
        assert (x.shape[1:], x.dtype) == (leaf.shape, leaf.dtype)
    np.testing.assert_array_equal(mode["side"], np.asarray(params)[:, 13:16].argmax(-1))
    np.testing.assert_allclose(mode["far"], np.asarray(params)[:, 16:18] * [2, 5] + [0, 5], rtol=1e-4)


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [(-10, 10, np.int32), (0, 20, np.int8), (-128, 127, np.int8), (250, 255, np.uint8), (0, 1, np.bool_)],
)
def test_integers_reach_both_bounds_in_their_dtype(low, high, dtype, key):
    """As users of Box(-10, 10, dtype=int), Box(0, 20, dtype=byte) and Box(0, 1, dtype=int8) met floats between bounds
    that were never reached (stable-baselines 1027, stable-baselines3 898, ray 8597)."""
    space = Box(low, high, (2,), jnp.dtype(dtype))
    dist = distributions.for_space(space)
    params = jnp.zeros((4000, dist.num_params))
    sample = dist.sample(params, dist.noise(key, (4000,)))
    assert sample.dtype == dtype and sample.shape == (4000, 2)
    assert (int(sample.min()), int(sample.max())) == (low, high) and len(np.unique(sample)) == high - low + 1
    np.testing.assert_allclose(dist.log_prob(params, sample), -2 * np.log(high - low + 1), rtol=1e-5)
    drawn = spaces.sample(space, key, (4000,))
    assert drawn.dtype == dtype and set(np.unique(drawn)) == set(np.unique(sample))
    assert np.array_equal(spaces.from_choices(space, spaces.to_choices(space, drawn)), drawn)
