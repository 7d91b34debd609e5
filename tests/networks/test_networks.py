"""The orthogonal initialiser, which must not hang under vmap, and what the modules compute."""

import subprocess
import sys
import textwrap

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from compiling import at_random, shipped_environment

from purerl import networks
from purerl.networks import layers
from purerl.networks.layers import Conv, halve, orthogonal
from purerl.networks.torsos import KINDS, Convolution, Convolutions
from purerl.spaces import Box


@pytest.mark.parametrize("shape", [(64, 64), (4, 64), (64, 2), (3, 3, 4, 16), (200, 1)])
def test_orthogonal(shape, key):
    kernel = np.asarray(orthogonal(np.sqrt(2))(key, shape), np.float64).reshape(-1, shape[-1])
    short = kernel if kernel.shape[0] <= kernel.shape[1] else kernel.T
    np.testing.assert_allclose(short @ short.T, 2 * np.eye(len(short)), atol=5e-6)


def test_orthogonal_is_the_qr_factor(key):
    """The same matrix as QR decomposition with a positive diagonal, of the same Gaussian draw."""
    gaussian = np.asarray(jax.random.normal(key, (32, 16)), np.float64)
    q, r = np.linalg.qr(gaussian)
    np.testing.assert_allclose(orthogonal()(key, (32, 16)), q * np.sign(np.diag(r)), atol=1e-5)


def test_orthogonal_is_uniform():
    """Rotations in the plane by a uniform angle."""
    rotations = jax.vmap(lambda k: orthogonal()(k, (2, 2)))(jax.random.split(jax.random.key(5), 4000))
    angle = np.arctan2(rotations[:, 1, 0], rotations[:, 0, 0])
    assert scipy.stats.kstest(angle, scipy.stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 1e-3


def test_no_lapack_in_a_vmapped_initialiser():
    network = networks.actor_critic(
        networks.Head(networks.MLP((8,)), 2, 0.01), networks.Head(networks.MLP((8,)), 1, 1.0)
    )
    init = jax.jit(jax.vmap(network.init, in_axes=(0, None)))
    text = init.lower(jax.random.split(jax.random.key(0), 4), jnp.zeros((1, 3))).as_text()
    assert "lapack" not in text and "qr" not in text.lower().replace("sqrt", "")


SIXTY_FOUR = textwrap.dedent("""
    import jax
    from purerl import envs, ppo
    config = ppo.Config(total_steps=64, num_envs=2, num_steps=32, num_epochs=1, num_minibatches=1)
    train = jax.jit(jax.vmap(ppo.make_train(config, envs.make("CartPole-v1"))))
    for i in range(10):
        jax.block_until_ready(train(jax.random.split(jax.random.key(i), 64)))
    print("done")
""")


@pytest.mark.weekly
def test_sixty_four_agents_do_not_hang():
    """Fresh processes, each killed if it outlasts ten times what it should take."""
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", SIXTY_FOUR],
            env=shipped_environment(),
            capture_output=True,
            text=True,
            timeout=150,
            check=True,
        )
        assert done.stdout.strip() == "done"


def test_mlp_by_hand(key):
    mlp = networks.MLP((5, 3), obs_ndim=2)
    obs = jax.random.normal(key, (7, 2, 4))
    params = mlp.init(key, obs)["params"]
    x = np.asarray(obs, np.float64).reshape(7, 8)
    for layer in ("Dense_0", "Dense_1"):
        x = np.tanh(x @ np.asarray(params[layer]["kernel"]) + np.asarray(params[layer]["bias"]))
    np.testing.assert_allclose(mlp.apply({"params": params}, obs), x, atol=1e-5)


def test_torso_for_images_and_vectors(key):
    image, vector = Box(0, 1, (10, 10, 4), np.bool_), Box(-1, 1, (6,), np.float32)
    for space, kind in ((image, networks.CNN), (vector, networks.MLP)):
        torso = networks.torso(space, (16,), "relu")
        assert isinstance(torso, kind)
        obs = jnp.ones((2, 3, *space.shape), space.dtype)
        features = torso.apply(torso.init(key, obs), obs)
        assert features.shape == (2, 3, 16) and features.dtype == jnp.float32


def normalised(x, params, name):
    """Zero mean and unit variance over the last axis, in float64, then the layer's own scale and shift."""
    x = np.asarray(x, np.float64)
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
    return x * np.asarray(params[name]["scale"]) + np.asarray(params[name]["bias"])


@pytest.mark.rest
def test_layer_norm_by_hand(key):
    """Conv and dense layers are normalised before their activation, with a scale and a shift of each unit."""
    key_init, key_obs, key_params = jax.random.split(key, 3)
    torso = networks.torso(Box(0, 1, (5, 4, 2), np.float32), (6, 3), "tanh", layer_norm=True)
    obs = jax.random.normal(key_obs, (7, 5, 4, 2))
    leaves, tree = jax.tree.flatten(torso.init(key_init, obs))
    keys = jax.random.split(key_params, len(leaves))
    variables = tree.unflatten([jax.random.normal(k, leaf.shape) for k, leaf in zip(keys, leaves, strict=True)])
    params = jax.tree.map(np.float64, variables["params"])
    windows = np.lib.stride_tricks.sliding_window_view(np.float64(obs), (3, 3), axis=(1, 2))  # [N, H, W, C, 3, 3]
    conv = np.einsum("nhwcij,ijco->nhwo", windows, params["Conv_0"]["kernel"]) + params["Conv_0"]["bias"]
    x = np.tanh(normalised(conv, params, "LayerNorm_0")).reshape(7, -1)
    for i in range(2):
        layer = params["MLP_0"][f"Dense_{i}"]
        x = np.tanh(normalised(x @ layer["kernel"] + layer["bias"], params["MLP_0"], f"LayerNorm_{i}"))
    np.testing.assert_allclose(torso.apply(variables, obs), x, atol=2e-5)


def test_torsos_without_hidden_layers(key):
    """The flattened input, and the flattened convolution."""
    vector, image = jax.random.normal(key, (2, 3, 4)), jax.random.normal(key, (2, 5, 5, 1))
    mlp, cnn = networks.MLP((), obs_ndim=2), networks.CNN(hidden_sizes=(), activation=lambda x: x)
    np.testing.assert_array_equal(mlp.apply(mlp.init(key, vector), vector), vector.reshape(2, 12))
    params = cnn.init(key, image)
    windows = np.lib.stride_tricks.sliding_window_view(np.asarray(image), (3, 3), axis=(1, 2))
    kernel = params["params"]["Conv_0"]["kernel"]
    expected = np.einsum("nhwcij,ijco->nhwo", windows, kernel).reshape(2, 3 * 3 * 16)
    np.testing.assert_allclose(cnn.apply(params, image), expected, atol=1e-5)


def test_free_outputs_do_not_depend_on_the_observation(key):
    head = networks.Head(networks.MLP((4,)), 2, 1.0, free=2)
    params = head.init(key, jnp.zeros((1, 3)))
    params["params"]["free"] = jnp.array([0.3, -0.2])
    out = head.apply(params, jax.random.normal(key, (5, 3)))
    np.testing.assert_array_equal(out[:, 2:], np.broadcast_to(np.float32([0.3, -0.2]), (5, 2)))
    assert np.ptp(out[:, 0]) > 0


@pytest.mark.parametrize("shape", [(10, 10), (5, 8), (3, 1)])
def test_halve_is_max_pool(key, shape):
    x = jax.random.normal(key, (2, 3, *shape, 4))
    expected = nn.max_pool(x.reshape(6, *shape, 4), (3, 3), strides=(2, 2), padding="SAME")
    np.testing.assert_array_equal(halve(x).reshape(expected.shape), expected)


@pytest.mark.parametrize("pad", [False, True])
def test_convolution_is_that_of_flax(key, pad):
    x, conv = jax.random.normal(key, (2, 3, 6, 7, 4)), Conv(5, pad)
    params = conv.init(key, x)
    params = jax.tree.map(lambda p: p + 0.1, params)
    expected = nn.Conv(5, (3, 3), padding="SAME" if pad else "VALID").apply(params, x)
    np.testing.assert_allclose(conv.apply(params, x), expected, atol=1e-5)


@pytest.mark.rest
@pytest.mark.parametrize(("size", "stride"), [(4, 2), (2, 3), (1, 1), (6, 3)])
@pytest.mark.parametrize("features", [1, 5])
@pytest.mark.parametrize("cache", [layers.CACHE, 1])
def test_strided_convolution_is_that_of_flax(key, monkeypatch, size, stride, features, cache):
    """And so are its gradients, and it of bytes: over positions, if there are few features, and over patches; in one
    part, and in 4."""
    monkeypatch.setattr(layers, "CACHE", cache)
    x, conv = jax.random.normal(key, (4, 9, 8, 2)), Conv(features, size=size, stride=stride)
    flax = nn.Conv(features, (size, size), (stride, stride), padding="VALID")
    params = jax.tree.map(lambda p: p + 0.1, conv.init(key, x))
    made, expected = (
        jax.value_and_grad(lambda params, x, of=of: jnp.sum(jnp.sin(of.apply(params, x))), (0, 1))(params, x)
        for of in (conv, flax)
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), made, expected)
    out = conv.apply(params, x)
    np.testing.assert_allclose(out, flax.apply(params, x), atol=1e-5)
    large = jax.random.randint(key, x.shape, 200, 256)
    in_bytes, in_floats = conv.apply(params, large.astype(np.uint8)), flax.apply(params, large.astype(np.float32))
    np.testing.assert_allclose(in_bytes, in_floats, rtol=1e-4, atol=1e-2)
    assert Convolutions("plain", (Convolution(features, size, stride),)).left((9, 8, 2)) == out.shape[1:3]


@pytest.mark.rest
def test_parts_fit_and_are_equal():
    """12 rows of which 5 fit are parts of 4; 13 rows are one part, as the only others would be of 1."""
    sizes = []
    double = lambda x: (sizes.append(len(x)), 2 * x)[1]
    for rows, part in ((12, 4), (13, 13), (5, 5)):
        np.testing.assert_array_equal(layers._in_parts(double, jnp.arange(rows), 5), 2 * np.arange(rows))
        assert set(sizes) == {part}
        sizes.clear()


@pytest.mark.rest
def test_nature_has_the_layers_of_mnih(key):
    """Three convolutions and a dense layer of 512 on four frames of 84 x 84: 7 x 7 x 64 features, and the weights and
    biases of 8 x 8 x 4 x 32, 4 x 4 x 32 x 64, 3 x 3 x 64 x 64 and 3136 x 512. Bytes are divided by 255."""
    nature = Convolutions("nature", KINDS["nature"])
    torso = networks.torso(Box(0, 255, (84, 84, 4), np.uint8), (512,), "relu", convolutions=nature)
    obs = jax.ShapeDtypeStruct((1, 84, 84, 4), np.uint8)
    params = jax.eval_shape(torso.init, key, obs)
    sizes = 8 * 8 * 4 * 32 + 32, 4 * 4 * 32 * 64 + 64, 3 * 3 * 64 * 64 + 64, 7 * 7 * 64 * 512 + 512
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == sum(sizes) == 1_684_128
    assert nature.left((84, 84, 4)) == (7, 7)
    small = Box(0, 255, (36, 37, 1), np.uint8)
    torso = networks.torso(
        small,
        (4,),
        "relu",
        convolutions=nature._replace(layers=[layer._replace(channels=2) for layer in nature.layers]),
    )
    image = jax.random.randint(key, (1, *small.shape), 0, 256).astype(jnp.uint8)
    params = torso.init(key, image)
    np.testing.assert_allclose(torso.apply(params, image), torso.apply(params, image / 255), atol=1e-6)


@pytest.mark.weekly
def test_resnet_by_hand(key):
    """IMPALA's deep network, written out with flax's own convolutions."""
    resnet = Convolutions("resnet", KINDS["resnet"])
    torso = networks.torso(Box(0, 1, (6, 5, 3), np.bool_), (7,), "relu", convolutions=resnet)
    obs = jax.random.bernoulli(key, 0.5, (4, 6, 5, 3))
    variables = torso.init(key, obs)
    params = jax.tree.map(lambda p: p + 0.01, variables["params"])
    convolutions = iter(range(15))

    def conv(x):
        layer = params[f"Conv_{next(convolutions)}"]
        return nn.Conv(layer["bias"].size, (3, 3), padding="SAME").apply({"params": layer}, x)

    x = obs.astype(jnp.float32)
    for _ in (16, 32, 32):
        x = nn.max_pool(conv(x), (3, 3), strides=(2, 2), padding="SAME")
        for _ in range(2):
            x = x + conv(nn.relu(conv(nn.relu(x))))
    x = nn.relu(x).reshape(4, -1)
    dense = params["MLP_0"]["Dense_0"]
    expected = nn.relu(x @ dense["kernel"] + dense["bias"][None])
    np.testing.assert_allclose(torso.apply({"params": params}, obs), expected, rtol=1e-4, atol=1e-4)
    assert [params[f"Conv_{i}"]["bias"].size for i in range(15)] == [16] * 5 + [32] * 10


def test_simba_by_hand():
    """Lee et al. 2024, figure 4, in float64: blocks add to what they normalise; images keep their convolution."""
    torso = networks.torso(Box(-1, 1, (3,), np.float32), (5, 5), "relu", convolutions=Convolutions("simba"))
    obs = jax.random.normal(jax.random.key(0), (4, 3))
    params = at_random(torso.init, jax.random.key(1), obs)["params"]["layers_1"]
    layer = jax.tree.map(np.float64, params)
    dense = lambda i, x: x @ layer[f"Dense_{i}"]["kernel"] + layer[f"Dense_{i}"]["bias"]

    def norm(i, x):
        x = (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-6)
        return x * layer[f"LayerNorm_{i}"]["scale"] + layer[f"LayerNorm_{i}"]["bias"]

    x = dense(0, np.float64(obs))
    for i in (0, 1):
        x = x + dense(2 * i + 2, np.maximum(dense(2 * i + 1, norm(i, x)), 0))
    out = torso.apply({"params": {"layers_1": params}}, obs)
    np.testing.assert_allclose(out, norm(2, x), rtol=1e-4, atol=1e-5)
    assert layer["Dense_1"]["kernel"].shape == (5, 20)
    image = networks.torso(Box(0, 1, (6, 6, 2), np.bool_), (5,), "relu", convolutions=Convolutions("simba"))
    made = jax.eval_shape(image.init, jax.random.key(0), jnp.zeros((1, 6, 6, 2), bool))["params"]
    assert made["layers_0"]["Conv_0"]["bias"].shape == (16,) and made["layers_1"]["LayerNorm_1"]["bias"].shape == (5,)
