"""Optimisers by name and weight decay: by hand in numpy, and against optax alone."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax import contrib

from purerl import a2c, dqn, envs, ppo, sac, spaces
from purerl.errors import ConfigError
from purerl.learners.parts import gradients, kernels

RNG = np.random.default_rng(0)
PARAMS = {
    "Dense_0": {"kernel": RNG.normal(size=(4, 3)), "bias": RNG.normal(size=3)},
    "LayerNorm_0": {"scale": RNG.normal(size=3), "bias": RNG.normal(size=3)},
    "critics": {"Dense_0": {"kernel": RNG.normal(size=(2, 3, 2)), "bias": RNG.normal(size=(2, 2))}},
    "Conv_0": {"kernel": RNG.normal(size=(2, 2, 3, 4)), "bias": RNG.normal(size=4)},
    "free": RNG.normal(size=2),
    "log_temperature": np.array(0.3),
}
GRADS = [jax.tree.map(lambda x: RNG.normal(size=np.shape(x)), PARAMS) for _ in range(10)]
IS_KERNEL = jax.tree_util.tree_map_with_path(lambda path, _: path[-1].key == "kernel", PARAMS)


def single(tree):
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), tree)


def steps(optimiser, params, grads):
    """Parameters after steps along fixed gradients, as learners take them."""
    loss = lambda params, along: (sum(jax.tree.leaves(jax.tree.map(lambda x, y: jnp.sum(x * y), params, along))), ())
    state = gradients.init_optimiser(optimiser, params)
    for along in grads:
        params, state, _, _ = gradients.gradient_step(loss, optimiser, params, state, along)
    return params


@pytest.mark.parametrize("name", ["", "adamw"])
def test_adamw_against_numpy(name):
    """Ten steps with clip, decay of the step size and a period, of two agents with step sizes of their own. Kernels
    decay and nothing else, by the step size of the same step (Loshchilov & Hutter 2019, algorithm 2)."""
    epsilon, bound, rates, decay = (1e-8 if name else 1e-5), 2.0, np.array([0.01, 0.1]), 0.5
    sizes = {"total_steps": 4 * 128 * 3, "num_envs": 4, "num_steps": 128, "max_grad_norm": bound}

    @jax.jit
    @jax.vmap
    def run(rate):
        config = ppo.Config(**sizes, learning_rate=rate, learning_rate_decay=0.5, weight_decay=decay)
        optimiser = gradients.named(config, name, period=2) if name else gradients.make_optimiser(config, period=2)
        return steps(optimiser, single(PARAMS), map(single, GRADS))

    result = run(jnp.asarray(rates, jnp.float32))
    total = ppo.Config(**sizes).total_updates // 2
    for i in range(2):
        leaves, moving = [np.array(x, np.float64) for x in jax.tree.leaves(PARAMS)], jax.tree.leaves(IS_KERNEL)
        means, squares = ([np.zeros_like(x) for x in leaves] for _ in range(2))
        for t, tree in enumerate(GRADS):
            grads = jax.tree.leaves(tree)
            length = np.sqrt(sum(np.sum(g**2) for g in grads))
            rate = rates[i] * (1 - 0.5 * t / total)
            for k, g in enumerate(grads):
                g = g * bound / max(length, bound)
                means[k], squares[k] = 0.9 * means[k] + 0.1 * g, 0.999 * squares[k] + 0.001 * g**2
                step = means[k] / (1 - 0.9 ** (t + 1)) / (np.sqrt(squares[k] / (1 - 0.999 ** (t + 1))) + epsilon)
                leaves[k] = leaves[k] - rate * (step + (decay * leaves[k] if moving[k] else 0))
        for x, expected in zip(jax.tree.leaves(result), leaves, strict=True):
            np.testing.assert_allclose(x[i], expected, rtol=1e-4, atol=1e-5)


def test_without_weight_decay_nothing_changes():
    """It is the program that there was, on one vector. The state is of the same form with it."""
    plain, some = (gradients.make_optimiser(a2c.Config(weight_decay=decay)) for decay in (0, 0.1))
    assert type(plain) is gradients.Elementwise and type(some) is gradients.ElementwiseDecaying
    states = [gradients.init_optimiser(optimiser, single(PARAMS)) for optimiser in (plain, some)]
    assert jax.tree.structure(states[0]) == jax.tree.structure(states[1])
    assert [x.shape for x in jax.tree.leaves(states[1])] == [x.shape for x in jax.tree.leaves(states[0])]


@pytest.mark.rest
def test_muon_is_that_of_optax():
    """Ten steps: a dense kernel as optax has it, each critic as if it were alone, a convolution as a matrix whose rows
    are the numbers of its window; all else by Adam; and kernels decay."""
    rate, weight_decay, bound = 0.05, 0.1, 1e6
    config = ppo.Config(learning_rate=rate, learning_rate_decay=0.0, max_grad_norm=bound, weight_decay=weight_decay)
    result = jax.jit(lambda: steps(gradients.named(config, "muon"), single(PARAMS), map(single, GRADS)))()
    flat = lambda tree: {
        "dense": tree["Dense_0"]["kernel"],
        "one": tree["critics"]["Dense_0"]["kernel"][0],
        "other": tree["critics"]["Dense_0"]["kernel"][1],
        "window": tree["Conv_0"]["kernel"].reshape(12, 4),
        "vectors": [
            tree["Dense_0"]["bias"],
            tree["LayerNorm_0"],
            tree["critics"]["Dense_0"]["bias"].reshape(-1),
            tree["Conv_0"]["bias"],
            tree["free"],
            tree["log_temperature"],
        ],
    }
    alone = contrib.muon(rate, consistent_rms=0.2, weight_decay=weight_decay)  # the decay is that of its matrices
    params = flat(single(PARAMS))
    state, update = alone.init(params), jax.jit(alone.update)
    for grads in GRADS:
        updates, state = update(flat(single(grads)), state, params)
        params = optax.apply_updates(params, updates)
    close = lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
    jax.tree.map(close, flat(result), params)


@pytest.mark.parametrize(
    ("algo", "env", "fields", "kinds"),
    [
        (ppo, "Breakout-MinAtar", {"hidden_sizes": (8,), "layer_norm": True}, {4: ((0, 1, 2), (3,)), 2: ((0,), (1,))}),
        (sac, "Pendulum-v1", {"hidden_sizes": (8, 8)}, {3: ((1,), (2,)), 2: ((0,), (1,))}),
        (dqn, "CartPole-v1", {"dueling": True}, {2: ((0,), (1,))}),
        (ppo, "CartPole-v1", {"memory": "gtrxl"}, {3: ((0,), (1, 2)), 2: ((0,), (1,))}),
        (ppo, "CartPole-v1", {"memory": "lru"}, {2: ((0,), (1,))}),
    ],
)
def test_matrices_of_our_networks(algo, env, fields, kinds):
    """Critics are a matrix each, the projections of an attention one each, a convolution one; no bias, no scale of a
    norm and no free parameter is a matrix, and the same numbers decay."""
    made = envs.make(env)
    learner = algo.make_learner(algo.Config(**fields), made)
    obs = jax.tree.map(lambda x: jnp.zeros((2, *x.shape), x.dtype), spaces.struct(made.observation_space))
    params = jax.eval_shape(learner.init, jax.random.key(0), obs).params
    is_leaf = lambda x: x is None or isinstance(x, contrib.MuonDimensionNumbers)
    axes = jax.tree.leaves(kernels.matrices(params), is_leaf=is_leaf)
    seen = {}
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    for (path, x), numbers, decays in zip(leaves, axes, jax.tree.leaves(kernels.mask(params)), strict=True):
        assert (numbers is not None) == (path[-1].key == "kernel")
        np.testing.assert_array_equal(decays, np.full(x.shape, float(numbers is not None)))
        if numbers:
            assert seen.setdefault(x.ndim, tuple(numbers)) == tuple(numbers)
    assert seen == kinds


def test_critics_of_separate_agents_are_matrices():
    """With a further axis of agents, where a convolution keeps its four."""
    shapes = {"Dense_0": {"kernel": (3, 2, 5, 4)}, "Conv_0": {"kernel": (3, 2, 2, 5, 4), "bias": (3, 4)}}
    tree = jax.tree.map(jnp.zeros, shapes, is_leaf=lambda x: isinstance(x, tuple))
    made = kernels.matrices(tree)
    assert made["Dense_0"]["kernel"] == ((2,), (3,)) and made["Conv_0"]["kernel"] == ((1, 2, 3), (4,))
    assert made["Conv_0"]["bias"] is None


@pytest.mark.rest
def test_a_named_optimiser_of_an_actor_has_the_actors_step_size():
    """Its own step size and period, as Adam has; a function of the user's own moves both halves alike."""
    params, grads = single(PARAMS), list(map(single, GRADS[:1]))
    config = sac.Config(learning_rate=0.1, learning_rate_decay=0.0)
    own = gradients.named(config, "sgd")
    other = gradients.given_or_made(own, sac.Config(learning_rate=0.3, learning_rate_decay=0.0))
    moved = [jax.tree.map(lambda x, y: x - y, params, steps(each, params, grads)) for each in (own, other)]
    jax.tree.map(lambda x, y: np.testing.assert_allclose(3 * x, y, rtol=1e-3, atol=1e-6), *moved)
    plain = optax.sgd(0.1)
    assert gradients.given_or_made(plain, config) is plain


def test_weight_decay_is_refused_where_it_has_no_effect():
    """With an optimiser of the user's own; optax's own decay gives way to it, and stays without it."""
    env = envs.make("CartPole-v1")
    with pytest.raises(ConfigError, match=r"^weight_decay = 0.1: has no effect with an optimiser that is given"):
        ppo.make_learner(ppo.Config(weight_decay=0.1), env, optimiser=optax.sgd(0.1))
    params, grads = single(PARAMS), [jax.tree.map(jnp.zeros_like, single(PARAMS))]
    bias = {}
    for decay in (0, 0.1):
        config = ppo.Config(learning_rate=0.5, learning_rate_decay=0.0, weight_decay=decay)
        after = steps(gradients.named(config, "adamw"), params, grads)
        np.testing.assert_allclose(
            after["Dense_0"]["kernel"], PARAMS["Dense_0"]["kernel"] * (1 - 0.5 * (decay or 1e-4)), rtol=1e-6
        )
        bias[decay] = np.any(after["free"] != params["free"])
    assert bias == {0: True, 0.1: False}
