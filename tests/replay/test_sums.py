"""The tree of sums against numpy: what it adds up, and what it finds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from purerl.replay import sums

FAN_OUTS, SIZES = (2, 8, 16), (1000, 4096, 37)
put, find = jax.jit(sums.put), jax.jit(sums.find)


def tree(values, fan_out: int) -> sums.Sums:
    return put(sums.init(len(values), fan_out), jnp.arange(len(values)), jnp.asarray(values, jnp.float32))


def padded(values, levels: sums.Sums) -> np.ndarray:
    return np.pad(np.asarray(values, np.float32), (0, levels[0].size - len(values)))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("fan_out", FAN_OUTS)
def test_every_entry_is_the_sum_of_those_below(fan_out, size):
    """After many writes, single ones with duplicates and runs of neighbours by turns."""
    rng = np.random.default_rng(size)
    index = rng.integers(0, size, (200, 32))
    index[:, 16:] = index[:, :16] + rng.integers(-1, 1, (200, 16))
    index[::2] = rng.integers(0, size - 31, (100, 1)) + np.arange(32)
    index = np.maximum(index, 0)
    values = (10 ** rng.uniform(-3, 3, index.shape) * (rng.random(index.shape) < 0.8)).astype(np.float32)

    def one(levels, x):
        levels = sums.put(levels, *x)
        return levels, (sums.total(levels), levels)

    _, (total, history) = jax.jit(lambda *x: jax.lax.scan(one, sums.init(size, fan_out), x))(index, values)
    history = jax.tree.map(np.asarray, history)
    expected = np.zeros(history[0][0].size, np.float32)
    for i, (places, written) in enumerate(zip(index, values, strict=True)):
        expected[places] = 0
        np.maximum.at(expected, places, written)
        np.testing.assert_array_equal(history[0][i].reshape(-1), expected)
        np.testing.assert_allclose(total[i], expected.astype(float).sum(), rtol=1e-5)
        for below, above in zip(history[:-1], history[1:], strict=True):
            added = below[i].astype(float).sum(axis=1)
            np.testing.assert_allclose(above[i].reshape(-1), np.pad(added, (0, above[i].size - added.size)), rtol=1e-5)
    assert np.isclose(sums.get(jax.tree.map(lambda x: x[-1], history), index[-1]), expected[index[-1]]).all()


@pytest.mark.parametrize("size", [*SIZES, 2, 16, 17, 256, 257])
@pytest.mark.parametrize("fan_out", FAN_OUTS)
def test_depth(fan_out, size):
    """The least number of levels whose product of fan-outs reaches the size."""
    levels = sums.init(size, fan_out)
    assert fan_out ** (len(levels) - 1) < size <= fan_out ** len(levels)
    assert [x.shape[1] for x in levels] == [fan_out] * len(levels) and levels[-1].shape[0] == 1


@pytest.mark.rest
@pytest.mark.parametrize("size", SIZES)
def test_found_where_the_running_sum_passes(size):
    """By every fan-out, away from where rounding decides."""
    rng = np.random.default_rng(size)
    values = (10 ** rng.uniform(-2, 1, size) * (rng.random(size) < 0.7)).astype(np.float32)
    fraction = rng.random(20_000, np.float32)
    running = np.cumsum(values, dtype=float) / values.sum(dtype=float)
    clear = np.all(
        [np.searchsorted(running, fraction + d) == np.searchsorted(running, fraction) for d in (-2e-6, 2e-6)], 0
    )
    assert clear.mean() > 0.8
    for fan_out in FAN_OUTS:
        index = np.asarray(find(tree(values, fan_out), fraction))
        np.testing.assert_array_equal(index[clear], np.searchsorted(running, fraction[clear], side="right"))
        before, after = np.append(0.0, running)[index], running[index]
        assert np.all((before - 2e-6 <= fraction) & (fraction <= after + 2e-6))


@pytest.mark.parametrize("fan_out", FAN_OUTS)
def test_frequencies(fan_out):
    """Each within three standard deviations of a binomial count."""
    values, draws = np.random.default_rng(0).uniform(0, 3, 37), 100_000
    index = find(tree(values, fan_out), jax.random.uniform(jax.random.key(0), (draws,)))
    counts, chance = np.bincount(index, minlength=37), values / values.sum()
    assert np.all(np.abs(counts - draws * chance) <= 3 * np.sqrt(draws * chance * (1 - chance)))
    assert scipy.stats.chisquare(counts, draws * chance).pvalue > 1e-3


@pytest.mark.rest
@pytest.mark.parametrize("fan_out", FAN_OUTS)
def test_zeros_are_never_found(fan_out):
    """Whatever rounds: at both ends, right at the borders of entries, and with values twelve decades apart."""
    rng, size = np.random.default_rng(0), 1000
    for i in range(60):
        values = 10 ** rng.uniform(*[(-1, 1), (-6, 6), (-6, -5)][i % 3], size) * (
            rng.random(size) < [0.5, 0.02, 0.9][i % 3]
        )
        values[[0, -1]] = 0
        if i < 20:
            values[:] = 0
            values[[0, 1, 15, 16, 17, 255, 256, 500, 998, 999][i % 10]] = [1e-6, 1e6][i // 10]
        levels = tree(values, fan_out)
        borders = np.cumsum(values) / values.sum()
        near = np.concatenate([borders + d * 2.0**-24 for d in (-2, -1, 0, 1, 2)])
        fraction = np.concatenate([[0.0, 2.0**-149, 1 - 2.0**-24, 1.0], np.clip(near, 0, 1)]).astype(np.float32)
        result = np.asarray(find(levels, fraction))
        assert np.all(padded(values, levels)[result] > 0)
