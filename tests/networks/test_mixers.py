"""Mixers: the team's value grows with each agent's, and is what the formula says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl.networks import mixers

M, S, WIDTH = 3, 4, 5


@pytest.fixture(scope="module", params=[0, 6])
def monotonic(request):
    """QMIX's mixer with random parameters, biases among them, so that every part of it counts."""
    mixer = mixers.monotonic(WIDTH, request.param)
    params = mixer.init(jax.random.key(0), jnp.zeros((1, M)), jnp.zeros((1, S)))
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    params = jax.tree.unflatten(structure, [jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)])
    return params, jax.jit(mixer.mix)


def drawn(count, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, M)).astype(np.float32), rng.normal(size=(count, S)).astype(np.float32)


@pytest.mark.rest
def test_the_teams_value_grows_with_each_agents(monotonic):
    """Finite differences at 1000 random states; the next agent's value alone is moved."""
    params, mix = monotonic
    q, state = drawn(1000)
    for agent in range(M):
        more = q + 0.5 * (np.arange(M) == agent)
        rise = np.asarray(mix(params, more.astype(np.float32), state) - mix(params, q, state))
        assert rise.shape == (1000, 1)
        assert rise.min() > -1e-3 and np.mean(rise > 1e-2) > 0.9


@pytest.mark.rest
def test_greedy_agents_are_a_greedy_team(monotonic):
    """Of all that two agents can do, the best for the team is what each values most."""
    params, mix = monotonic
    q, state = drawn(200)
    choices = np.random.default_rng(2).normal(size=(200, 2, 3)).astype(np.float32)
    all_q = np.repeat(q[:, None], 9, axis=1)
    all_q[:, :, 0], all_q[:, :, 1] = np.repeat(choices[:, 0], 3, axis=1), np.tile(choices[:, 1], (1, 3))
    total = np.asarray(mix(params, all_q, np.repeat(state[:, None], 9, axis=1)))[..., 0]
    greedy = np.argmax(choices[:, 0], axis=1) * 3 + np.argmax(choices[:, 1], axis=1)
    assert np.all(total[np.arange(200), greedy] >= total.max(axis=1) - 1e-3)


@pytest.mark.rest
def test_biases_may_be_negative(monotonic):
    """What remains where all values are 0 falls below 0 and rises above it."""
    params, mix = monotonic
    nothing = np.asarray(mix(params, np.zeros((1000, M), np.float32), drawn(1000)[1]))
    assert nothing.min() < -1 and nothing.max() > 1


def test_monotonic_against_numpy():
    """Without hidden layers of the weights' networks, in float64: only the weights are made positive."""
    mixer = mixers.monotonic(WIDTH, 0)
    q, state = drawn(7)
    params = jax.tree.map(
        lambda x: jnp.asarray(np.random.default_rng(x.size).normal(size=x.shape), jnp.float32),
        mixer.init(jax.random.key(0), q, state),
    )

    def layer(place, x):
        return x @ np.float64(place["kernel"]) + np.float64(place["bias"])

    of = params["params"]
    hidden_of_value = next(part["Dense_0"] for name, part in of.items() if name.startswith("MLP") and part)
    first, bias, value, second = (of[f"Dense_{i}"] for i in range(4))  # in the order in which they are applied
    hidden = np.einsum("nm,nmk->nk", q, np.abs(layer(first, state)).reshape(-1, M, WIDTH)) + layer(bias, state)
    hidden = np.where(hidden > 0, hidden, np.expm1(np.minimum(hidden, 0)))
    expected = np.sum(np.abs(layer(second, state)) * hidden, axis=1, keepdims=True)
    expected += layer(value, np.maximum(layer(hidden_of_value, state), 0))
    np.testing.assert_allclose(mixer.mix(params, q, state), expected, rtol=1e-4, atol=1e-4)


def test_sum_and_apart():
    q, state = drawn(6)
    for mixer, expected in ((mixers.summed(), q.sum(axis=1, keepdims=True)), (mixers.apart(), q)):
        params = mixer.init(jax.random.key(0), q, state)
        assert jax.tree.leaves(params) == []
        np.testing.assert_allclose(mixer.mix(params, q, state), expected, rtol=1e-6)


@pytest.mark.rest
def test_leading_axes(monotonic):
    params, mix = monotonic
    q, state = drawn(12)
    together = mix(params, q.reshape(3, 4, M), state.reshape(3, 4, S))
    np.testing.assert_allclose(together.reshape(12, 1), mix(params, q, state), rtol=2e-5, atol=1e-5)
