"""Networks of action values against explicit weight matrices in numpy float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from purerl import networks
from purerl.networks import value_networks
from purerl.spaces import Box

A, K, N = 3, 4, 5
VECTOR, IMAGE = Box(-1, 1, (6,), np.float32), Box(0, 1, (5, 5, 2), np.bool_)


def q_network(space=VECTOR, hidden_sizes=(8, 7), **options):
    return value_networks.q_network(space, A, hidden_sizes, "relu", **{"dueling": False, **options})


def quantile_network(space=VECTOR, dueling=True, level=1.0):
    return value_networks.implicit_quantile_network(
        space, A, (8, 7), "relu", dueling=dueling, num_quantiles=K, num_cosines=5, level=level
    )


BUILDERS = {
    "plain": lambda space=VECTOR: q_network(space),
    "dueling atoms": lambda space=VECTOR: q_network(space, dueling=True, num_atoms=K),
    "noisy": lambda space=VECTOR: q_network(space, noisy=True),
    "noisy dueling atoms": lambda space=VECTOR: q_network(space, noisy=True, dueling=True, num_atoms=K),
    "quantiles": lambda space=VECTOR: quantile_network(space, dueling=False),
    "dueling quantiles": lambda space=VECTOR: quantile_network(space),
}


def randomised(init, *args):
    """Standard normal parameters in place of those of ``init``, so that no bias and no output is small."""
    rng = np.random.default_rng(0)
    params = jax.eval_shape(init, jax.random.key(0), *args)
    return jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), leaf.dtype), params)


def made(network, num=N):
    """Random parameters, observations ``[num, 6]`` and noise of a network of vectors."""
    obs = jnp.asarray(np.random.default_rng(1).normal(size=(num, 6)), jnp.float32)
    return randomised(network.init, obs), obs, network.noise(jax.random.key(2), (num,))


def float64(params):
    return jax.tree.map(np.float64, params)["params"]


def dense(layer, x):
    return x @ layer["kernel"] + layer["bias"]


def relu(x):
    return np.maximum(x, 0.0)


def noisy(layer, noise, x):
    """One observation ``[in]`` through the disturbed matrix ``W + S * outer(e_out, e_in)`` of Fortunato's eq. 9."""
    weights, deviations = layer["mean"]["kernel"].T, layer["deviation"]["kernel"].T  # [out, in]
    factors = np.where(noise < 0, -1, 1) * np.abs(noise) ** 0.5
    e_in, e_out = factors[: len(x)], factors[len(x) :]
    bias = layer["mean"]["bias"] + layer["deviation"]["bias"] * e_out
    return (weights + deviations * np.outer(e_out, e_in)) @ x + bias


def test_noisy_layer_is_a_disturbed_matrix(key):
    layer = value_networks.NoisyDense(4)
    x, noise = jax.random.normal(key, (N, 6)), jax.random.normal(jax.random.key(1), (N, 10))
    params = randomised(layer.init, x, noise)
    expected = [noisy(float64(params), *pair) for pair in zip(np.float64(noise), np.float64(x), strict=True)]
    np.testing.assert_allclose(layer.apply(params, x, noise), expected, atol=2e-5)


def test_noisy_layer_at_the_start():
    """Means uniform within 1 / sqrt(in), deviations 0.5 / sqrt(in)."""
    x, noise = jnp.zeros((1, 16)), jnp.zeros((1, 16 + 500))
    params = value_networks.NoisyDense(500).init(jax.random.key(3), x, noise)["params"]
    for part in params["mean"].values():
        assert scipy.stats.kstest(np.ravel(part), scipy.stats.uniform(-0.25, 0.5).cdf).pvalue > 1e-3
    for part in params["deviation"].values():
        np.testing.assert_array_equal(part, np.full(part.shape, 0.125, np.float32))


def test_noisy_layer_over_many_draws():
    """Of one input, 1: the mean is that of no noise, the variance ``S^2 2/pi + s_b^2 sqrt(2/pi)``.

    For ``E f(x)^2 = E |x| = sqrt(2/pi)`` and ``E f(x) = 0``.
    """
    layer, num = value_networks.NoisyDense(1), 40_000
    parts = (("mean", 1.3, -0.4), ("deviation", 0.5, 0.7))
    params = {"params": {name: {"kernel": jnp.array([[a]]), "bias": jnp.array([b])} for name, a, b in parts}}
    out = layer.apply(params, jnp.ones((num, 1)), jax.random.normal(jax.random.key(4), (num, 2)))
    still = layer.apply(params, jnp.ones((1, 1)), jnp.zeros((1, 2)))
    variance = 0.5**2 * 2 / np.pi + 0.7**2 * np.sqrt(2 / np.pi)
    assert still == pytest.approx(1.3 - 0.4)
    assert np.mean(out) == pytest.approx(0.9, abs=5 * np.sqrt(variance / num))
    assert np.var(out) == pytest.approx(variance, rel=0.05)


def test_plain_by_hand():
    network = q_network()
    params, obs, noise = made(network)
    hand = float64(params)
    features = relu(dense(hand["torso"]["Dense_0"], np.float64(obs)))
    hidden = relu(dense(hand["streams"]["Dense_0"], features))
    expected = dense(hand["streams"]["Dense_1"], hidden)
    assert noise == network.still((N,)) == ()
    np.testing.assert_allclose(network.apply(params, obs, ()), expected, rtol=1e-5, atol=1e-4)


def test_initial_scales(key):
    """Orthogonal kernels: the streams' hidden layer times sqrt(2), the last 0.01; no bias."""
    params = float64(jax.jit(q_network(hidden_sizes=(8,)).init)(key, jnp.zeros((1, 6))))["streams"]
    hidden, last = params["Dense_0"]["kernel"], params["Dense_1"]["kernel"]  # [6, 8], [8, 3]
    np.testing.assert_allclose(hidden @ hidden.T, 2 * np.eye(6), atol=1e-5)
    np.testing.assert_allclose(last.T @ last, 1e-4 * np.eye(A), atol=1e-9)
    assert not any(np.any(params[layer]["bias"]) for layer in params)


def test_noisy_dueling_by_hand():
    """Each layer has a part of the noise of its own, and each observation its own noise."""
    network = q_network(noisy=True, dueling=True, num_atoms=K)
    params, obs, noise = made(network)
    hand = float64(params)
    parts = np.cumsum([8 + 7, 7 + K, 8 + 7, 7 + A * K])
    assert noise.shape == (N, parts[-1])
    out = jax.jit(network.apply)(params, obs, noise)
    for n in range(N):
        features = relu(dense(hand["torso"]["Dense_0"], np.float64(obs[n])))
        pieces = np.split(np.float64(noise[n]), parts[:-1])
        value, advantage = (
            noisy(
                hand["streams"][f"NoisyDense_{i + 1}"],
                pieces[i + 1],
                relu(noisy(hand["streams"][f"NoisyDense_{i}"], pieces[i], features)),
            )
            for i in (0, 2)
        )
        advantage = advantage.reshape(A, K)
        expected = [[value[k] + advantage[a, k] - sum(advantage[:, k]) / A for k in range(K)] for a in range(A)]
        np.testing.assert_allclose(out[n], expected, rtol=1e-4, atol=1e-3)


def test_still_is_the_mean_weights():
    """Exactly a plain network of the means; and the noise of learning and of acting is the same."""
    network, mean = q_network(noisy=True, dueling=True), q_network(dueling=True)
    params, obs, noise = made(network)
    streams = params["params"]["streams"]
    plain = {f"Dense_{i}": streams[f"NoisyDense_{i}"]["mean"] for i in range(4)}
    plain = {"params": {"torso": params["params"]["torso"], "streams": plain}}
    np.testing.assert_array_equal(network.apply(params, obs, network.still((N,))), mean.apply(plain, obs, ()))
    assert not np.allclose(network.apply(params, obs, noise), mean.apply(plain, obs, ()))
    np.testing.assert_array_equal(*(f(jax.random.key(1), (2,)) for f in (network.noise, network.acting_noise)))


@pytest.mark.parametrize("num_atoms", [None, K])
def test_dueling_is_identifiable(num_atoms):
    """The mean over actions is the value stream, and what is added to all advantages changes nothing."""
    network = q_network(dueling=True, num_atoms=num_atoms)
    params, obs, _ = made(network)
    out, hand = network.apply(params, obs, ()), float64(params)
    features = relu(dense(hand["torso"]["Dense_0"], np.float64(obs)))
    value = dense(hand["streams"]["Dense_1"], relu(dense(hand["streams"]["Dense_0"], features)))
    np.testing.assert_allclose(np.mean(out, axis=1), value if num_atoms else value[:, 0], rtol=1e-4, atol=1e-4)
    shift = jnp.tile(jnp.arange(1.0, 1 + (num_atoms or 1)), A)  # one constant an atom, the same for all actions
    advantage = params["params"]["streams"]["Dense_3"]
    advantage["bias"] += shift
    np.testing.assert_allclose(network.apply(params, obs, ()), out, atol=1e-4)
    advantage["bias"] = advantage["bias"].at[0].add(1.0)
    assert np.max(np.abs(network.apply(params, obs, ()) - out)) > 0.5


def test_implicit_quantiles_by_hand():
    network = quantile_network()
    params, obs, taus = made(network)
    hand, tau = float64(params), np.float64(taus)
    quantiles, same = jax.jit(network.apply)(params, obs, taus)
    np.testing.assert_array_equal(same, taus)
    for n in range(N):
        features = relu(dense(hand["torso"]["Dense_0"], np.float64(obs[n])))
        for k in range(K):
            kernel, bias = hand["Dense_0"]["kernel"], hand["Dense_0"]["bias"]
            phi = [
                max(0.0, sum(np.cos(np.pi * i * tau[n, k]) * kernel[i, j] for i in range(5)) + bias[j])
                for j in range(8)
            ]
            value, advantage = (
                dense(hand["streams"][f"Dense_{i + 1}"], relu(dense(hand["streams"][f"Dense_{i}"], features * phi)))
                for i in (0, 2)
            )
            expected = value + advantage - np.mean(advantage)
            np.testing.assert_allclose(quantiles[n, :, k], expected, rtol=1e-3, atol=1e-3)


def test_cosines_are_chebyshev_polynomials(key):
    """cos(i arccos x) = T_i(x)."""
    taus = jax.random.uniform(key, (2, 3))
    x = np.cos(np.pi * np.float64(taus))
    expected = np.stack([np.polynomial.Chebyshev.basis(i)(x) for i in range(64)], axis=-1)
    np.testing.assert_allclose(value_networks.cosines(taus, 64), expected, atol=5e-5)


def test_any_number_of_taus():
    """Each quantile depends on its own tau alone."""
    network = quantile_network()
    params, obs, _ = made(network)
    taus = jax.random.uniform(jax.random.key(8), (N, 7))
    apply = jax.jit(network.apply)
    quantiles, _ = apply(params, obs, taus)
    assert quantiles.shape == (N, A, 7)
    np.testing.assert_allclose(apply(params, obs, taus[:, 2:3])[0], quantiles[..., 2:3], rtol=1e-4, atol=1e-4)


def test_level_scales_the_taus_of_acting(key):
    """Learning keeps all of (0, 1); acting and evaluation keep the lower part. The level is traced."""

    def taus(level):
        network = quantile_network(level=level)
        return network.noise(key, (2000,)), network.acting_noise(key, (2000,)), network.still((2, 3))

    learning, acting, still = jax.jit(jax.vmap(taus))(jnp.array([1.0, 0.25]))
    np.testing.assert_array_equal(learning[0], learning[1])
    np.testing.assert_array_equal(acting, learning * np.array([1, 0.25], np.float32)[:, None, None])
    assert scipy.stats.kstest(np.ravel(learning[0]), scipy.stats.uniform.cdf).pvalue > 1e-3
    for level, midpoints in zip((1, 0.25), still, strict=True):
        expected = np.broadcast_to([level * t for t in (0.125, 0.375, 0.625, 0.875)], (2, 3, K))
        np.testing.assert_allclose(midpoints, expected, rtol=1e-6)


@pytest.mark.parametrize("name", BUILDERS)
def test_shapes_under_jit_and_vmap(name):
    """Two agents, each with five observations, of vectors and of images; nothing but the shapes is computed."""
    expected = (2, N, A, K) if "atoms" in name or "quantiles" in name else (2, N, A)
    for space in (VECTOR, IMAGE):
        network = BUILDERS[name](space)

        def agent(key, obs, network=network):
            params = network.init(key, obs)
            noises = network.noise(key, (N,)), network.acting_noise(key, (N,)), network.still((N,))
            return noises, [network.apply(params, obs, noise) for noise in noises]

        keys, obs = jax.random.split(jax.random.key(0), 2), jnp.zeros((2, N, *space.shape), space.dtype)
        noises, outs = jax.eval_shape(jax.jit(jax.vmap(agent)), keys, obs)
        assert noises[0] == noises[1] == noises[2]
        for out in outs:
            values = out[0] if "quantiles" in name else out
            assert values.shape == expected and values.dtype == jnp.float32


@pytest.mark.rest
def test_two_agents_are_two_lone_ones():
    network = q_network(noisy=True, dueling=True, num_atoms=K)
    keys, obs = jax.random.split(jax.random.key(0), 2), jax.random.normal(jax.random.key(1), (N, 6))
    noise = network.noise(jax.random.key(2), (N,))

    def agent(key):
        return network.apply(network.init(key, obs), obs, noise)

    lone = jax.jit(agent)
    np.testing.assert_allclose(jax.jit(jax.vmap(agent))(keys), [lone(key) for key in keys], atol=1e-5)


@pytest.mark.parametrize("name", BUILDERS)
def test_every_parameter_learns(name):
    network = BUILDERS[name]()
    params, obs, noise = made(network, num=20)

    def loss(params):
        out = network.apply(params, obs, noise)
        values = out[0] if "quantiles" in name else out
        return jnp.sum(values * jnp.asarray(np.random.default_rng(0).normal(size=values.shape), jnp.float32))

    for path, gradient in jax.tree_util.tree_leaves_with_path(jax.jit(jax.grad(loss))(params)):
        assert np.all(np.isfinite(gradient)) and np.any(gradient != 0), path


def test_noise_must_fit():
    """Noise is neither shared between observations nor of another length."""
    for name in ("noisy", "quantiles"):
        network = BUILDERS[name]()
        params, obs, noise = made(network)
        wrong = [noise[:1], noise[0]] + [noise[:, :-1]] * (name == "noisy")
        for other in wrong:
            with pytest.raises(AssertionError):
                network.apply(params, obs, other)


def test_a_hidden_layer_is_needed():
    with pytest.raises(ValueError):
        q_network(hidden_sizes=())


@pytest.mark.rest
def test_streams_take_any_leading_axes(key):
    """So that they can be the head of a recurrent network."""
    streams = value_networks.Streams(A, 7, networks.ACTIVATIONS["relu"], dueling=True)
    features = jax.random.normal(key, (2, 3, 8))
    params = randomised(streams.init, features[0])
    np.testing.assert_allclose(streams.apply(params, features)[1], streams.apply(params, features[1]), atol=1e-6)
