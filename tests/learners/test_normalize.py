"""Running moments against numpy float64, at counts where float32 sums would have stopped; and what they scale."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl.learners.parts import normalize


def test_moments_match_numpy():
    rng = np.random.default_rng(0)
    batches = [rng.normal(100, 3, size=(size, 5, 2)) for size in (4, 1, 64)]
    moments = normalize.init_moments((2,))
    for batch in batches:
        moments = normalize.update_moments(moments, jnp.asarray(batch, jnp.float32))
    everything = np.concatenate([b.reshape(-1, 2) for b in batches])
    assert moments.count == len(everything)
    np.testing.assert_allclose(moments.mean, everything.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(moments.var, everything.var(axis=0), rtol=1e-3)


def test_numbers_beyond_the_squares_of_float32_are_survived():
    """Beside them small numbers are normalised as ever."""
    x = jnp.stack([jnp.array([1e30, -3e38, 1e30, 2e19]), jnp.arange(4.0)], axis=-1)
    normalizer = normalize.running()
    state = normalizer.init(x[0])
    for _ in range(3):
        state = normalizer.update(state, x)
    seen = normalizer.apply(state, x)
    assert np.isfinite(jax.tree.leaves(state)[1]).all() and np.isfinite(seen).all()
    np.testing.assert_array_equal(np.sign(seen[:, 0]), [1, -1, 1, 1])
    np.testing.assert_allclose(seen[:, 1], (np.arange(4) - 1.5) / np.std(np.arange(4)), rtol=1e-5)
    scaler = normalize.running_reward()
    _, reward = scaler.scale(scaler.init(2), jnp.full((4, 2), 1e30), jnp.zeros((4, 2), bool), 0.99)
    assert np.isfinite(reward).all()


def test_a_batch_above_the_largest_count_replaces_what_was():
    moments = normalize.update_moments(normalize.init_moments(()), jnp.full(4, 100.0))
    for _ in range(3):
        moments = normalize.update_moments(moments, jnp.arange(10.0), max_count=4)
    assert (moments.count, moments.mean) == (10, 4.5)
    np.testing.assert_allclose(moments.var, np.var(np.arange(10)), rtol=1e-6)


def test_count_beyond_float32_and_int32():
    """2^24 + 3 more samples are counted exactly; the count stops at its maximum instead of wrapping."""
    moments = normalize.init_moments(())._replace(count=jnp.int32(2**24))
    assert normalize.update_moments(moments, jnp.zeros(3)).count == 2**24 + 3
    full = normalize.update_moments(moments._replace(count=jnp.int32(2**30 - 2)), jnp.ones(8))
    assert full.count == normalize.MAX_COUNT
    assert normalize.update_moments(full, jnp.ones(8)).mean > full.mean


@pytest.mark.parametrize("size", [1, 4])
def test_small_batches_beyond_float32(size):
    """After 2^24 samples of mean 5 and variance 4 come 20,000 small batches of others, merged in numpy float64."""
    more = np.random.default_rng(4).normal([6, -100], [1, 3], size=(20_000, size, 2)).astype(np.float32)
    before = np.array([5.0, 5.0]), np.array([4.0, 4.0])
    moments = normalize.Moments(jnp.int32(2**24), jnp.float32(before[0]), jnp.float32(before[1]))
    start = normalize.Compensated(moments, jnp.zeros(2), jnp.zeros(2))
    merge = jax.jit(lambda s: jax.lax.scan(lambda m, x: (normalize.compensate(m, x), None), s, more)[0])
    moments, flat = merge(start).moments, np.float64(more).reshape(-1, 2)
    total = 2**24 + len(flat)
    mean = (2**24 * before[0] + flat.sum(axis=0)) / total
    var = (2**24 * (before[1] + (before[0] - mean) ** 2) + ((flat - mean) ** 2).sum(axis=0)) / total
    assert moments.count == total
    np.testing.assert_allclose(moments.mean, mean, atol=1e-6)
    np.testing.assert_allclose(moments.var, var, rtol=1e-5)


def test_pieces_of_data_beyond_the_largest_count():
    """The count stops at 2^30. A piece then has the weight of its size, as merged in numpy float64."""
    pieces = np.random.default_rng(6).normal(6, 2, size=(200, 1000)).astype(np.float32)
    first = normalize.Moments(jnp.int32(2**30 - 3000), jnp.float32(5), jnp.float32(4))
    merge = jax.jit(lambda s: jax.lax.scan(lambda m, x: (normalize.compensate(m, x), None), s, pieces)[0])
    moments = merge(normalize.Compensated(first, jnp.zeros(()), jnp.zeros(()))).moments
    count, mean, var = 2**30 - 3000, 5.0, 4.0
    for piece in np.float64(pieces):
        count = min(count + 1000, 2**30)
        weight, shift = 1000 / count, piece.mean() - mean
        mean, var = mean + weight * shift, (1 - weight) * (var + weight * shift**2) + weight * piece.var()
    assert moments.count == count == normalize.MAX_COUNT
    np.testing.assert_allclose([moments.mean, moments.var], [mean, var], atol=1e-6)


def test_scale_of_rewards_beyond_float32():
    """The count stays at 2^24 on purpose, so that the scale still follows rewards whose size changes."""
    scaler = normalize.running_reward()
    state = scaler.init(512)
    state = state._replace(moments=state.moments._replace(count=jnp.int32(2**24), var=jnp.float32(1.0)))
    reward = jnp.asarray(np.random.default_rng(5).normal(0, 2, size=(1, 512)), jnp.float32)
    scale = lambda s, _: (scaler.scale(s, reward, jnp.ones((1, 512), bool), 0.9)[0], None)
    state, _ = jax.lax.scan(scale, state, None, 2**15)
    assert state.moments.count == 2**24
    target = np.var(np.float64(reward))
    np.testing.assert_allclose(state.moments.var, target + (1 - target) / np.e, rtol=0.02)


def test_no_drift_over_many_batches():
    batch = jax.random.normal(jax.random.key(1), (1000,)) * 2 + 5
    merge = lambda moments, _: (normalize.update_moments(moments, batch), None)
    moments, _ = jax.lax.scan(merge, normalize.init_moments(()), None, 5000)
    np.testing.assert_allclose(moments.mean, np.mean(np.asarray(batch, np.float64)), rtol=1e-5)
    np.testing.assert_allclose(moments.var, np.var(np.asarray(batch, np.float64)), rtol=1e-4)


def test_running_normalizer():
    obs = jnp.asarray(np.random.default_rng(2).normal([1, -50], [2, 10], size=(64, 4, 2)), jnp.float32)
    normalizer = normalize.running()
    moments = normalizer.update(normalizer.init(obs[0, 0]), obs)
    flat = np.asarray(normalizer.apply(moments, obs)).reshape(-1, 2)
    np.testing.assert_allclose(flat.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(flat.std(axis=0), 1, rtol=1e-4)
    constant = normalizer.apply(normalizer.update(normalizer.init(jnp.ones(2)), jnp.ones((9, 2))), jnp.ones((1, 2)))
    assert not np.any(constant)


def test_running_reward_matches_loop():
    """The return so far, accumulated by hand over two calls, and restarting where episodes end."""
    rng = np.random.default_rng(3)
    reward, last, gamma = rng.normal(size=(20, 3)), rng.random((20, 3)) < 0.2, 0.9
    scaler = normalize.running_reward()
    state = scaler.init(3)
    state, first = scaler.scale(state, jnp.asarray(reward[:10]), jnp.asarray(last[:10]), gamma)
    state, second = scaler.scale(state, jnp.asarray(reward[10:]), jnp.asarray(last[10:]), gamma)
    seen, total = [], np.zeros(3)
    for t in range(20):
        total = gamma * total + reward[t]
        seen.append(total)
        total = np.where(last[t], 0, total)
    np.testing.assert_allclose(state.discounted, total, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(first, reward[:10] / np.std(seen[:10]), rtol=1e-4)
    np.testing.assert_allclose(second, reward[10:] / np.std(seen), rtol=1e-4)


@pytest.mark.parametrize("spirit", [0.0, 0.3, 1.0])
def test_team_spirit(spirit):
    """Two teams of three: each keeps a part of its own reward and takes the rest of the team's mean."""
    scaler = normalize.team_spirit(3, spirit)
    reward = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    state, mixed = jax.jit(scaler.scale)(scaler.init(6), reward, np.zeros((4, 6), bool), 0.9)
    assert state == ()
    for first in (0, 3):
        team = np.float64(reward[:, first : first + 3])
        for i in range(3):
            expected = (1 - spirit) * team[:, i] + spirit * team.sum(axis=1) / 3
            np.testing.assert_allclose(mixed[:, first + i], expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="must divide num_envs = 7"):
        scaler.init(7)
