"""Wider networks put out what they did, with the same moments, in every learner that has one optimiser."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from purerl import envs, networks, trees
from purerl.algos import ALGORITHMS
from purerl.algos.dqn import make_network as make_q_network
from purerl.formulas import distributions
from purerl.learners import gradients, older, policy_gradients, surgery

CARTPOLE, BREAKOUT = envs.make("CartPole-v1"), envs.make("Breakout-MinAtar")


def disturbed(key, tree):
    """Every float moved at random, so that none is special."""
    vector, split = ravel_pytree(tree)
    return split(vector + 0.3 * jax.random.normal(key, vector.shape))


def learner(algo, env=CARTPOLE, **settings):
    return ALGORITHMS[algo].make_learner(ALGORITHMS[algo].Config(**settings), env)


def observations(env, key, size=256):
    obs = jax.random.normal(key, (size, *env.observation_space.shape))
    return obs > 0.5 if env.observation_space.dtype == bool else 2 * obs


def outputs(algo, config, env, params, obs):
    """Policy and value, or action values."""
    if algo == "dqn":
        return [make_q_network(config, env).apply(params, obs, ())]
    network = policy_gradients.make_network(config, env, distributions.for_space(env.action_space))
    return [network.act(params, obs, ())[0], network.value(params, obs, ())]


@pytest.mark.parametrize(
    ("algo", "env", "old", "new", "settings"),
    [
        ("ppo", CARTPOLE, (8, 8), (12, 20), {"activation": "tanh"}),
        ("ppo", CARTPOLE, (8, 8, 8), (8, 16, 8), {"activation": "relu"}),
        ("ppo", CARTPOLE, (64,), (96,), {"activation": "silu"}),
        ("ppo", BREAKOUT, (8,), (24,), {"activation": "relu"}),
        ("ppo", envs.make("Pendulum-v1"), (8, 8), (9, 30), {"activation": "gelu"}),
        ("dqn", CARTPOLE, (8, 8), (16, 12), {"activation": "relu"}),
        ("dqn", CARTPOLE, (8,), (16,), {"activation": "gelu"}),
        ("dqn", CARTPOLE, (8, 8), (8, 40), {"activation": "elu", "dueling": True}),
        ("dqn", CARTPOLE, (8, 8), (8, 16), {"layer_norm": True}),
    ],
)
def test_outputs_stay(algo, env, old, new, settings, key):
    keys = jax.random.split(key, 4)
    obs = observations(env, keys[0])
    before = ALGORITHMS[algo].Config(hidden_sizes=old, **settings)
    after = ALGORITHMS[algo].Config(hidden_sizes=new, **settings)
    state = learner(algo, env, hidden_sizes=old, **settings).init(keys[1], obs)
    state = state._replace(params=disturbed(keys[2], state.params))
    fresh = learner(algo, env, hidden_sizes=new, **settings).init(keys[3], obs)
    assert surgery.problems(state, fresh) == []
    grown = surgery.widen(state, fresh)
    assert trees.shapes(grown) == trees.shapes(fresh)
    expected = outputs(algo, before, env, state.params, obs)
    found = outputs(algo, after, env, grown.params, obs)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    others = outputs(algo, after, env, fresh.params, obs)
    assert max(float(jnp.max(jnp.abs(a - b))) for a, b in zip(others, expected, strict=True)) > 0.01


def test_inputs_are_added(key):
    """64 units become 96, and three more numbers are observed, of which the old units know nothing."""
    keys = jax.random.split(key, 4)
    small, large = (networks.Head(networks.MLP((size, size)), 2, 1.0) for size in (64, 96))
    obs, more = jax.random.normal(keys[0], (50, 4)), jax.random.normal(keys[1], (50, 3))
    params = disturbed(keys[2], small.init(keys[2], obs))
    seen = jnp.concatenate([obs, more], axis=-1)
    grown = surgery.widen_params(params, large.init(keys[3], seen))
    np.testing.assert_allclose(large.apply(grown, seen), small.apply(params, obs), atol=1e-5)


def test_new_units_learn(key):
    """The weights from new units to old ones have a gradient, and new units differ from one another."""
    module = networks.Head(networks.MLP((8, 8)), 2, 1.0)
    wide = networks.Head(networks.MLP((16, 16)), 2, 1.0)
    obs = jax.random.normal(key, (50, 4))
    grown = surgery.widen_params(module.init(key, obs), wide.init(jax.random.key(1), obs))
    grads = jax.grad(lambda params: jnp.sum(jnp.square(wide.apply(params, obs) - 1)))(grown)["params"]
    assert np.all(grads["Dense_0"]["kernel"][8:] != 0)
    first = np.asarray(grown["params"]["torso"]["Dense_0"]["kernel"])
    assert len(np.unique(first.round(6), axis=1).T) == 16


def corners(old, new):
    """The old places of a wider tree, and the sum of the sizes of all numbers in it."""
    total = sum(float(jnp.sum(jnp.abs(x))) for x in jax.tree.leaves(new))
    return jax.tree.map(lambda a, b: b[tuple(slice(n) for n in a.shape)], old, new), total


@pytest.mark.parametrize("form", ["vector", "tree"])
def test_moments_stay(form, key):
    """As one vector, and as a tree, as a GPU has them; new ones are 0, and the count of steps goes on."""
    obs = observations(CARTPOLE, key)
    params, fresh = (
        learner("ppo", hidden_sizes=sizes).init(jax.random.key(size), obs).params
        for size, sizes in enumerate([(8, 8), (16, 12)])
    )
    optimiser = optax.chain(optax.scale_by_adam(), gradients.descent(lambda updates: jnp.float32(1e-3)))
    begin = (lambda x: optimiser.init(ravel_pytree(x)[0])) if form == "vector" else optimiser.init
    moments = disturbed(key, params)
    shaped = ravel_pytree(moments)[0] if form == "vector" else moments
    adam, descent = begin(params)
    state = adam._replace(count=jnp.int32(7), mu=shaped, nu=jax.tree.map(jnp.abs, shaped)), descent
    (grown, descent), split = surgery.widen_moments(state, params, begin(fresh), fresh), ravel_pytree(fresh)[1]
    assert grown.count == 7 and trees.shapes(grown) == trees.shapes(begin(fresh)[0])
    for found, expected in ((grown.mu, moments), (grown.nu, jax.tree.map(jnp.abs, moments))):
        kept, total = corners(expected, split(found) if form == "vector" else found)
        jax.tree.map(np.testing.assert_array_equal, kept, expected)
        np.testing.assert_allclose(total, corners(expected, expected)[1], rtol=1e-5)


def test_past_versions_grow(key):
    """Each as the newest does: the parameters that act are old ones."""
    settings = {"lag": 1.0, "max_lag": 2}
    obs = observations(CARTPOLE, key)
    state = learner("ppo", hidden_sizes=(8,), **settings).init(key, obs)
    older_params = disturbed(key, state.params)
    state = state._replace(past=older.delay(state.past, older_params, 0)[1], stale=older_params)
    fresh = learner("ppo", hidden_sizes=(12,), **settings).init(key, obs)
    grown = surgery.widen(state, fresh)
    split = ravel_pytree(fresh.params)[1]
    for version, params in ((0, older_params), (1, state.params)):
        expected = surgery.widen_params(params, fresh.params)
        jax.tree.map(np.testing.assert_array_equal, split(grown.past.versions[version]), expected)
    jax.tree.map(np.testing.assert_array_equal, grown.stale, surgery.widen_params(older_params, fresh.params))


@pytest.mark.parametrize(
    "algo",
    ["a2c", "appo", "dpo", "impala", "reinforce", "apex", "c51", "iqn", "pqn", "qr-dqn", "rainbow"],
)
def test_every_learner_acts_as_before(algo, key):
    keys = jax.random.split(key, 4)
    obs = observations(CARTPOLE, keys[0])
    settings = {"layer_norm": False} if algo == "pqn" else {}
    small = learner(algo, hidden_sizes=(8, 8), **settings)
    large = learner(algo, hidden_sizes=(16, 24), **settings)
    state = small.init(keys[1], obs)
    state = state._replace(params=disturbed(keys[2], state.params))
    fresh = large.init(keys[3], obs)
    assert surgery.problems(state, fresh) == []
    grown = surgery.widen(state, fresh)
    assert trees.shapes(grown) == trees.shapes(fresh)
    expected, _ = small.exploit(small.policy(state), obs, small.init_carry(len(obs)), key)
    found, _ = large.exploit(large.policy(grown), obs, large.init_carry(len(obs)), key)
    np.testing.assert_array_equal(found, expected)
    assert len(np.unique(expected)) == 2


@pytest.mark.parametrize(
    ("algo", "old", "new", "settings", "line"),
    [
        ("ppo", (8, 8), (16, 8), {"layer_norm": True}, "LayerNorm_0.bias: a wider layer would be normalised by"),
        ("ppo", (8, 8), (8, 4), {}, "cannot shrink from [8] to [4]"),
        ("ppo", (8, 8), (8, 8, 8), {}, "the network would have other layers"),
        ("ppo", (8, 8), (8, 8), {"memory_size": 8}, "only dense layers can be widened"),
        (
            "sac-discrete",
            (8, 8),
            (16, 16),
            {},
            "keeps its parameters or its optimisers in a way that surgery does not know",
        ),
    ],
)
def test_problems(algo, old, new, settings, line, key):
    obs = observations(CARTPOLE, key, 4)
    other = dict(settings)
    if "memory_size" in settings:
        settings, other = {"memory": "lru", "memory_size": 4}, {"memory": "lru", "memory_size": 8}
    state = learner(algo, hidden_sizes=old, **settings).init(key, obs)
    fresh = learner(algo, hidden_sizes=new, **other).init(key, obs)
    assert any(line in problem for problem in surgery.problems(state, fresh))


def test_an_optimiser_that_keeps_more_for_each_parameter(key):
    """A matrix with a row for each parameter has an order that surgery does not know."""
    obs = observations(CARTPOLE, key, 4)
    state, fresh = (learner("ppo", hidden_sizes=(size,)).init(key, obs) for size in (8, 12))
    state, fresh = (s._replace(opt_state=jnp.zeros((ravel_pytree(s.params)[0].size, 2))) for s in (state, fresh))
    assert surgery.problems(state, fresh) == ["the optimiser's state has a size of its own for each parameter"]
