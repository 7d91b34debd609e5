"""OPEN's optimiser: its formula against float64 numpy, what it sees of layers, and trainings by it."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiling import AS_SHIPPED, for_bits

from purerl import a2c, appo, compiler_options, counters, dpo, dqn, envs, impala, ippo, mappo, networks, ppo, reinforce
from purerl.errors import ConfigError
from purerl.learned import layer_activity, open_optimiser, published, sockets
from purerl.learned.layer_activity import Layer
from purerl.learned.open_optimiser import Progress
from purerl.learners.parts import gradients
from purerl.networks.torsos import Convolution

OPEN = {"optimiser_form": "open", "optimiser_base": "none", "optimiser_memory": 4, "optimiser_layers": [8]}
SMALL = {"total_steps": 4 * 64 * 4, "num_steps": 64, "hidden_sizes": (8,)}


@pytest.mark.rest
@pytest.mark.parametrize(("count", "memory", "width"), [(1211, 8, 16), (3571, 16, 32)])
def test_formula(count, memory, width):
    """Three steps on tensors of all shapes, by float64 numpy that goes parameter by parameter; weights at random, of
    the published shapes and in the order in which files have them."""
    rng = np.random.default_rng(count)
    numbers = 0.5 * rng.normal(size=count)
    made = open_optimiser.read({"optimiser_form": "open", "optimiser_memory": memory, "optimiser_layers": [width] * 2})
    meta_params = published.unflatten(made, np.float32(numbers))
    weights = named(numbers, memory, width)
    shapes = [(5,), (3, 5), (2, 2, 1, 3), ()]
    params = [rng.normal(size=shape) for shape in shapes]
    momenta = [np.zeros((*shape, 6)) for shape in shapes]
    carries = [np.zeros((*shape, memory)) for shape in shapes]
    flat = lambda tensors: jnp.asarray(np.concatenate([x.reshape(-1) for x in tensors]), jnp.float32)
    rows = lambda tensors, n: np.concatenate([x.reshape(-1, n) for x in tensors]).T
    ours = flat(params), jnp.zeros((6, 33)), jnp.zeros((memory, 33))
    for _ in range(3):
        grads = [rng.normal(size=shape) * rng.lognormal(-6, 3) for shape in shapes]
        grads[1][0] = 0.0
        active = [np.abs(rng.normal(size=shape[-1:])) for shape in shapes]
        active[0][2] = 0.0
        places, age, noise = [0.0, 0.25, 0.5, 1.0], (0.3, 0.7), [rng.normal(size=shape) for shape in shapes]
        layers = [
            Layer(jnp.asarray(a, jnp.float32), jnp.full(shape, place))
            for a, shape, place in zip(active, shapes, places, strict=True)
        ]
        values, averages, carry = ours
        averages = open_optimiser.average(averages, flat(grads))
        seen = open_optimiser.features(values, flat(grads), averages, Progress(*map(jnp.float32, age)), layers)
        carry = open_optimiser.remember(meta_params["gru"], carry, seen)
        taken = open_optimiser.moves(open_optimiser.outputs(meta_params["mlp"], carry), flat(noise))
        ours = values - taken, averages, carry

        changes = []
        for i, shape in enumerate(shapes):
            features = described(params[i], grads[i], momenta[i], active[i], age[0], places[i], age[1])
            change = np.zeros(shape)
            for at in np.ndindex(shape):
                carries[i][at] = recurrent(weights, carries[i][at], features[at])
                size, exponent, random = perceptron(weights, carries[i][at])
                change[at] = 1e-3 * size * np.exp(1e-3 * exponent) + 1e-3 * random * noise[i][at]
            changes.append(change)
        middle = sum(change.sum() for change in changes) / 33
        params = [x - (change - middle) for x, change in zip(params, changes, strict=True)]
        np.testing.assert_allclose(averages, rows(momenta, 6), rtol=1e-5, atol=1e-9)
        np.testing.assert_allclose(carry, rows(carries, memory), atol=2e-5)
        np.testing.assert_allclose(taken, flat(changes) - middle, atol=1e-7)
        np.testing.assert_allclose(ours[0], flat(params), atol=1e-6)


def named(numbers, memory, width):
    """A file's vector as matrices ``[in, out]`` and biases, in the order that their authors' code gives it."""
    shapes = {"hn.b": (memory,), "hn": (memory, memory), "hr": (memory, memory), "hz": (memory, memory)}
    for gate in ("in", "ir", "iz"):
        shapes |= {f"{gate}.b": (memory,), gate: (19, memory)}
    for layer, size in enumerate((memory, width)):
        shapes |= {f"d{layer}.b": (width,), f"d{layer}": (size, width), f"n{layer}.b": (width,), f"n{layer}": (width,)}
    shapes |= {"last.b": (3,), "last": (width, 3)}
    cuts = np.cumsum([int(np.prod(shape)) for shape in shapes.values()])
    assert cuts[-1] == len(numbers)
    return {name: x.reshape(shapes[name]) for name, x in zip(shapes, np.split(numbers, cuts[:-1]), strict=True)}


def described(param, grad, momentum, active, training, place, batch):
    """The 19 features of a tensor, beside each other on a last axis; ``momentum`` is moved on in place."""
    for i, decay in enumerate(np.float64(np.float32([0.1, 0.5, 0.9, 0.99, 0.999, 0.9999]))):
        momentum[..., i] = decay * momentum[..., i] + (1 - decay) * grad
    columns = [param, *(np.sign(momentum[..., i]) for i in range(6))]
    columns += [np.log(np.abs(momentum[..., i]) + 1e-13) for i in range(6)]
    columns += [np.sign(grad), np.log(np.abs(grad) + 1e-13)]
    columns = [x / np.sqrt(1e-5 + np.mean(x**2)) for x in columns]
    sizes = active + 1e-11
    columns += [np.full(param.shape, x) for x in (training, place, batch)]
    columns += [np.broadcast_to(sizes / sizes.mean(), param.shape)]
    return np.stack(columns, axis=-1)


def recurrent(weights, carry, x):
    """A gated recurrent unit."""
    sigmoid = lambda x: 1 / (1 + np.exp(-x))
    reset = sigmoid(x @ weights["ir"] + weights["ir.b"] + carry @ weights["hr"])
    update = sigmoid(x @ weights["iz"] + weights["iz.b"] + carry @ weights["hz"])
    new = np.tanh(x @ weights["in"] + weights["in.b"] + reset * (carry @ weights["hn"] + weights["hn.b"]))
    return (1 - update) * new + update * carry


def perceptron(weights, x):
    """Two layers, normalised and rectified, and a third."""
    for i in (0, 1):
        x = x @ weights[f"d{i}"] + weights[f"d{i}.b"]
        x = (x - x.mean()) / np.sqrt(x.var() + 1e-6) * weights[f"n{i}"] + weights[f"n{i}.b"]
        x = np.maximum(x, 0)
    return x @ weights["last"] + weights["last.b"]


def test_progress():
    """By epochs within an iteration and iterations within a training, in integers, also far beyond 2^32 updates."""
    config = ppo.Config(num_epochs=3, num_minibatches=4, total_steps=5 * 512)
    for update in range(60):
        result = open_optimiser.progress(config, counters.of(update))
        np.testing.assert_allclose(result, (update // 12 / 4, update // 4 % 3 / 2), rtol=1e-6)
    long = dataclasses.replace(config, total_steps=2**40 * 512)
    update = 12 * 2**39 + 5
    np.testing.assert_allclose(open_optimiser.progress(long, counters.of(update)), (0.5, 0.5), rtol=1e-6)
    assert open_optimiser.progress(a2c.Config(total_steps=128 * 9), counters.of(4)) == (0.5, 0.0)
    one = open_optimiser.progress(ppo.Config(num_epochs=1, total_steps=512), counters.of(0))
    assert one == (0.0, 0.0)


def seen(network, params, obs):
    """The `Layer`s of a loss that runs actor and critic."""

    def loss(params, obs):
        policy, value, _ = network.unroll(params, obs, (), ())
        return jnp.sum(policy) + jnp.sum(value), ()

    layers = layer_activity.watched(loss)(params, obs)[1][1]
    return layers["actor"]["params"], layers["critic"]["params"]


@pytest.mark.rest
@pytest.mark.parametrize("layer_norm", [False, True])
def test_layers_of_vectors(layer_norm, key):
    """After the activation, or raw in the last layer; a normalisation belongs to its layer, free parameters to none."""
    torso = networks.MLP((4, 3), jnp.tanh, layer_norm=layer_norm)
    network = networks.actor_critic(networks.Head(torso, 2, 1.0, free=2), networks.Head(torso, 1, 1.0))
    obs = jax.random.normal(key, (7, 5))
    params = network.init(key, obs)
    actor, critic = seen(network, params, obs)
    own = params["actor"]["params"]["torso"]
    x = obs @ own["Dense_0"]["kernel"]
    if layer_norm:
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
    expected = np.mean(np.abs(np.tanh(x)), axis=0)
    np.testing.assert_allclose(actor["torso"]["Dense_0"]["kernel"].activity, expected, rtol=1e-5)
    np.testing.assert_allclose(actor["torso"]["Dense_0"]["bias"].activity, expected, rtol=1e-5)
    out = network.unroll(params, obs, (), ())[0][:, :2]
    np.testing.assert_allclose(actor["Dense_0"]["kernel"].activity, np.mean(np.abs(out), axis=0), rtol=1e-5)
    assert actor["Dense_0"]["kernel"].place.shape == (3, 2) and actor["free"].activity.tolist() == [1, 1]
    places = [x["bias"].place[0] for x in (actor["torso"]["Dense_0"], actor["torso"]["Dense_1"], actor["Dense_0"])]
    np.testing.assert_allclose([*places, actor["free"].place[0]], [0, 1 / 3, 2 / 3, 1], rtol=1e-6)
    assert critic["torso"]["Dense_1"]["bias"].place.tolist() == [0.5] * 3 and critic["Dense_0"]["bias"].place[0] == 1
    if layer_norm:
        np.testing.assert_allclose(actor["torso"]["LayerNorm_0"]["scale"].activity, expected, rtol=1e-5)
        assert actor["torso"]["LayerNorm_1"]["bias"].place[0] == np.float32(1 / 3)


@pytest.mark.rest
def test_layers_of_images(key):
    """A channel's activity is its mean over all places; the convolution comes first."""
    torso = networks.CNN((Convolution(3),), (4,))
    network = networks.actor_critic(networks.Head(torso, 2, 1.0), networks.Head(torso, 1, 1.0))
    obs = jax.random.normal(key, (2, 6, 6, 1))
    params = network.init(key, obs)
    actor, _ = seen(network, params, obs)
    own = params["actor"]["params"]["torso"]["Conv_0"]
    windows = np.lib.stride_tricks.sliding_window_view(np.asarray(obs)[..., 0], (3, 3), axis=(1, 2))
    x = np.maximum(np.einsum("bhwij,ijf->bhwf", windows, own["kernel"][:, :, 0]), 0)
    np.testing.assert_allclose(actor["torso"]["Conv_0"]["kernel"].activity, x.mean((0, 1, 2)), rtol=1e-5)
    order = actor["torso"]["Conv_0"], actor["torso"]["MLP_0"]["Dense_0"], actor["Dense_0"]
    assert [float(x["bias"].place[0]) for x in order] == [0.0, 0.5, 1.0]


def test_nothing_is_seen_inside_a_loop(key):
    """What runs under another trace is left alone, and has the activity 1."""
    torso = networks.MLP((4,), jnp.tanh)
    obs = jnp.ones((7, 5))
    params = {"actor": torso.init(key, obs), "critic": torso.init(key, obs)}

    def loss(params, obs):
        scanned = jax.lax.scan(lambda _, x: ((), torso.apply(params["actor"], x)), (), obs)[1]
        return jnp.sum(scanned) + jnp.sum(torso.apply(params["critic"], obs)), ()

    (_, (_, layers)), grads = jax.jit(jax.value_and_grad(layer_activity.watched(loss), has_aux=True))(params, obs)
    actor, critic = (layers[name]["params"]["Dense_0"]["kernel"] for name in ("actor", "critic"))
    assert actor.activity.tolist() == [1] * 4 and np.all(actor.place == layer_activity.UNKNOWN)
    assert np.all(critic.activity != 1) and np.all(np.isfinite(grads["actor"]["params"]["Dense_0"]["kernel"]))


@pytest.mark.rest
def test_a_step_by_hand(key):
    """Clipping of actor and critic by themselves, the noise on the actor alone, the mean of all, the count."""
    config = ppo.Config(max_grad_norm=0.5)
    made = open_optimiser.read(OPEN)
    meta_params = open_optimiser.init(made, jax.random.key(1))
    meta_params["mlp"][-1]["dense"] = {"bias": jnp.array([0.0, 0.0, 2.0]), "kernel": jnp.zeros((8, 3))}  # noise alone
    optimiser = open_optimiser.make(meta_params, config, made)
    params = {"actor": jnp.ones((3, 2)), "critic": jnp.ones(5)}
    state = gradients.init_optimiser(optimiser, params)
    loss = lambda params, batch: (100 * jnp.sum(params["actor"]) + 0.1 * jnp.sum(params["critic"]), ())
    after, state, _, _ = gradients.gradient_step(loss, optimiser, params, state, ())
    moved = np.asarray(after["actor"]) - 1
    assert np.ptp(after["critic"]) == 0 and len(np.unique(moved)) == 6
    np.testing.assert_allclose(moved.sum() + 5 * (after["critic"][0] - 1), 0, atol=1e-6)
    (own,) = (x for x in jax.tree.leaves(state, is_leaf=is_state) if is_state(x))
    np.testing.assert_allclose(own.momenta[0], 0.9 * np.array([0.5 / 6**0.5] * 6 + [0.1] * 5), rtol=1e-5)
    assert counters.number(own.updates.updates) == 1
    again, _, _, _ = gradients.gradient_step(loss, optimiser, params, state, ())
    assert np.all(again["actor"] != after["actor"])


def is_state(x):
    return isinstance(x, open_optimiser.OpenState)


@functools.cache
def training(algo, env, config, base):
    """``train(meta_params, key)``; None for the algorithm alone."""
    socket = sockets.make("optimiser", **{**OPEN, "optimiser_base": base})
    made = config and dataclasses.replace(algo.Config(), **dict(config))
    parts = lambda given: {} if given is None else socket.parts(given, made)
    train = lambda given, key: algo.make_train(made, envs.make(env), **parts(given))(key).state.learner
    return socket, train


ZERO = [
    ("CartPole-v1", {}),
    ("Pendulum-v1", {"layer_norm": True}),
    ("Breakout-MinAtar", {"num_steps": 16, "total_steps": 4 * 16 * 2}),
    ("CartPole-v1", {"memory": "gru", "hidden_sizes": (8, 8), "target_kl": 1e-4}),
]


@pytest.mark.weekly
@pytest.mark.parametrize(("env", "more"), ZERO)
def test_begins_as_adam(env, more, key):
    """With Adam as base and a last layer of zeros, which evolution starts from, no bit of a training changes."""
    socket, train = training(ppo, env, tuple({**SMALL, **more}.items()), "adam")
    run = jax.jit(train, compiler_options=AS_SHIPPED | compiler_options())
    meta_params = socket.init(jax.random.key(1))
    before, after = run(None, key), run(meta_params, key)
    jax.tree.map(np.testing.assert_array_equal, after.params, before.params)
    moved = run(jax.tree.map(lambda x: x + 0.1, meta_params), key)
    assert all(np.any(a != b) for a, b in zip(*map(jax.tree.leaves, (moved.params, before.params)), strict=True))


@pytest.mark.weekly
def test_a_lane_is_a_lone_run():
    """Agents beside each other have noise of their own and no bit of a neighbour's; a program for one, whose arrays
    have other shapes, gives the same up to rounding."""
    socket, train = training(ppo, "CartPole-v1", tuple({**SMALL, "total_steps": 512}.items()), "none")
    meta_params = socket.init(jax.random.key(1))
    first, second, third = jax.random.split(jax.random.key(2), 3)
    train_both = jax.jit(jax.vmap(train, in_axes=(None, 0)), compiler_options=for_bits())
    together, otherwise = (train_both(meta_params, jnp.stack([one, second])) for one in (first, third))
    lane = lambda both: jax.tree.map(lambda x: x[1], data(both))
    jax.tree.map(np.testing.assert_array_equal, lane(together), lane(otherwise))
    alone = jax.jit(train, compiler_options=for_bits())(meta_params, second)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7)
    jax.tree.map(close, lane(together), data(alone))
    (own,) = (x for x in jax.tree.leaves(together.opt_state, is_leaf=is_state) if is_state(x))
    assert np.any(jax.random.key_data(own.key[0]) != jax.random.key_data(own.key[1]))


def data(tree):
    """Keys as their words."""
    is_key = lambda x: jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return jax.tree.map(lambda x: jax.random.key_data(x) if is_key(x) else x, tree)


ALGOS = [
    *((algo, "CartPole-v1", {"hidden_sizes": (8,)}) for algo in (dpo, appo, a2c, impala, reinforce)),
    (ippo, "Landmarks-v0", {"hidden_sizes": (8,)}),
    (mappo, "Landmarks-v0", {"hidden_sizes": (8,), "share_parameters": False}),
]


@pytest.mark.weekly
@pytest.mark.parametrize(("algo", "env", "fields"), ALGOS, ids=lambda x: getattr(x, "name", ""))
def test_every_policy_gradient_is_moved_by_it(algo, env, fields, key):
    config = dataclasses.replace(algo.Config(), **fields)
    config = dataclasses.replace(config, total_steps=2 * config.batch_size)
    socket = sockets.make("optimiser", **OPEN)
    train = algo.make_train(config, envs.make(env), **socket.parts(socket.init(key), config))
    result = jax.jit(train)(key).state.learner
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(result.params))
    (own,) = (x for x in jax.tree.leaves(result.opt_state, is_leaf=is_state) if is_state(x))
    assert np.all(np.any(np.asarray(own.carry) != 0, axis=1)) and counters.number(own.updates.updates) > 1


def test_what_it_refuses():
    socket = sockets.make("optimiser", **OPEN)
    meta_params = socket.init(jax.random.key(0))
    (line,) = socket.problems(dqn.Config())
    with pytest.raises(ConfigError, match="policy gradients"):
        socket.parts(meta_params, dqn.Config())
    assert "\n" not in line
    assert socket.problems(ppo.Config()) == []
    assert "num_minibatches" in socket.problems(ppo.Config(num_minibatches=2**17))[0]
    with pytest.raises(ConfigError, match="optimiser_layers"):
        sockets.make("optimiser", optimiser_form="open", optimiser_layers=[0])
    with pytest.raises(ConfigError, match="optimiser_form"):
        sockets.make("optimiser", optimiser_form="sgd")
