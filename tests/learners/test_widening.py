"""Wider networks put out what they did, with the same moments, in every learner that has one optimiser."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from compiling import at_random
from jax.flatten_util import ravel_pytree

from purerl import envs, networks, trees
from purerl.algos import ALGORITHMS
from purerl.algos.dqn import make_network as make_q_network
from purerl.formulas import distributions
from purerl.learners.families import actor_critic
from purerl.learners.parts import gradients, stale_actors, widening
from purerl.types import Situation

KEY = jax.random.key(0)
CARTPOLE, BREAKOUT = envs.make("CartPole-v1"), envs.make("Breakout-MinAtar")


def learner(algo, env=CARTPOLE, **settings):
    return ALGORITHMS[algo].make_learner(ALGORITHMS[algo].Config(**settings), env)


def observations(env, size=256):
    obs = np.random.default_rng(9).normal(size=(size, *env.observation_space.shape)).astype(np.float32)
    return obs > 0.5 if env.observation_space.dtype == bool else 2 * obs


def start(algo, env=CARTPOLE, seed=0, **settings):
    """A state of random parameters."""
    return at_random(learner(algo, env, **settings).init, KEY, observations(env), seed=seed)


def widened(state, fresh):
    assert widening.problems(state, fresh) == []
    grown = widening.widen(state, fresh)
    assert trees.shapes(grown) == trees.shapes(fresh)
    return grown


def outputs(algo, config, env, params, obs):
    """Policy and value, or action values."""
    if algo == "dqn":
        return [make_q_network(config, env).apply(params, obs, ())]
    network = actor_critic.make_network(config, env, distributions.for_space(env.action_space))
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
def test_outputs_stay(algo, env, old, new, settings):
    before, after = (ALGORITHMS[algo].Config(hidden_sizes=sizes, **settings) for sizes in (old, new))
    obs = observations(env)

    @jax.jit
    def run(state, fresh):
        sides = ((before, state), (after, widened(state, fresh)), (after, fresh))
        return [outputs(algo, config, env, side.params, obs) for config, side in sides]

    states = (start(algo, env, seed, hidden_sizes=sizes, **settings) for seed, sizes in enumerate((old, new)))
    expected, result, others = run(*states)
    for a, b in zip(result, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    assert max(float(np.max(np.abs(a - b))) for a, b in zip(others, expected, strict=True)) > 0.01


def test_inputs_are_added():
    """64 units become 96, and three more numbers are observed, of which the old units know nothing."""
    small, large = (networks.Head(networks.MLP((size, size)), 2, 1.0) for size in (64, 96))
    seen = np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32)
    obs = seen[:, :4]

    @jax.jit
    def run(params, fresh):
        return large.apply(widening.widen_params(params, fresh), seen), small.apply(params, obs)

    result, expected = run(at_random(small.init, KEY, obs), at_random(large.init, KEY, seen, seed=1))
    np.testing.assert_allclose(result, expected, atol=1e-5)


def test_new_units_learn():
    """The weights from new units to old ones have a gradient, and new units differ from one another."""
    small, wide = (networks.Head(networks.MLP((size, size)), 2, 1.0) for size in (8, 16))
    obs = observations(CARTPOLE, 50)

    @jax.jit
    def run(params, fresh):
        grown = widening.widen_params(params, fresh)
        return grown, jax.grad(lambda params: jnp.sum(jnp.square(wide.apply(params, obs) - 1)))(grown)

    grown, grads = run(at_random(small.init, KEY, obs), jax.jit(wide.init)(KEY, obs))
    assert np.all(grads["params"]["Dense_0"]["kernel"][8:] != 0)
    first = np.asarray(grown["params"]["torso"]["Dense_0"]["kernel"])
    assert len(np.unique(first.round(6), axis=1).T) == 16


def corners(old, new):
    """The old places of a wider tree, and the sum of the sizes of all numbers in it."""
    total = sum(float(np.sum(np.abs(x))) for x in jax.tree.leaves(new))
    return jax.tree.map(lambda a, b: b[tuple(slice(n) for n in a.shape)], old, new), total


@pytest.mark.parametrize("form", ["vector", "tree"])
def test_moments_stay(form):
    """As one vector, and as a tree, as a GPU has them; new ones are 0, and the count of steps goes on."""
    params, fresh, moments = (
        start("ppo", seed=seed, hidden_sizes=sizes).params for seed, sizes in enumerate([(8, 8), (16, 12), (8, 8)])
    )
    optimiser = optax.chain(optax.scale_by_adam(), gradients.descent(lambda updates: jnp.float32(1e-3)))
    begin = (lambda x: optimiser.init(ravel_pytree(x)[0])) if form == "vector" else optimiser.init

    @jax.jit
    def run(params, fresh, moments):
        shaped = ravel_pytree(moments)[0] if form == "vector" else moments
        adam, descent = begin(params)
        state = adam._replace(count=jnp.int32(7), mu=shaped, nu=jax.tree.map(jnp.abs, shaped)), descent
        return widening.widen_moments(state, params, begin(fresh), fresh), begin(fresh)

    ((grown, _), like), split = run(params, fresh, moments), ravel_pytree(fresh)[1]
    assert grown.count == 7 and trees.shapes(grown) == trees.shapes(like[0])
    for result, expected in ((grown.mu, moments), (grown.nu, jax.tree.map(np.abs, moments))):
        kept, total = corners(expected, split(result) if form == "vector" else result)
        jax.tree.map(np.testing.assert_array_equal, kept, expected)
        np.testing.assert_allclose(total, corners(expected, expected)[1], rtol=1e-5)


def test_past_versions_grow():
    """Each as the newest does: the parameters that act are old ones."""
    settings = {"lag": 1.0, "max_lag": 2}

    state, fresh = (start("ppo", seed=size, hidden_sizes=(size,), **settings) for size in (8, 12))
    older = start("ppo", seed=3, hidden_sizes=(8,)).params

    @jax.jit
    def run(state, fresh):
        history = stale_actors.begin(state.learner.params, 2)
        state = state._replace(history=stale_actors.lagged(history, older, 0)[1], acting=older)
        return widening.widen(state, fresh)

    grown = run(state, fresh)
    wider, split = fresh.learner.params, ravel_pytree(fresh.learner.params)[1]
    for version, params in ((0, older), (1, state.learner.params)):
        expected = widening.widen_params(params, wider)
        jax.tree.map(np.testing.assert_array_equal, split(grown.history.versions[version]), expected)
    jax.tree.map(np.testing.assert_array_equal, grown.acting, widening.widen_params(older, wider))


@pytest.mark.parametrize(
    "algo",
    ["a2c", "appo", "dpo", "impala", "reinforce", "v-mpo", "apex", "c51", "iqn", "pqn", "qr-dqn", "rainbow"],
)
def test_every_learner_acts_as_before(algo):
    settings = {"layer_norm": False} if algo == "pqn" else {}
    small, large = (8, 8), (16, 24)
    obs = observations(CARTPOLE)

    @jax.jit
    def run(state, fresh):
        taken = []
        for sizes, side in ((small, state), (large, widened(state, fresh))):
            player = learner(algo, hidden_sizes=sizes, **settings)
            taken.append(player.exploit(player.policy(side), Situation(obs, player.init_carry(len(obs))), KEY)[0])
        return taken

    states = (start(algo, seed=seed, hidden_sizes=sizes, **settings) for seed, sizes in enumerate((small, large), 2))
    expected, result = run(*states)
    np.testing.assert_array_equal(result, expected)
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
def test_problems(algo, old, new, settings, line):
    other = dict(settings)
    if "memory_size" in settings:
        settings, other = {"memory": "lru", "memory_size": 4}, {"memory": "lru", "memory_size": 8}
    state, fresh = start(algo, hidden_sizes=old, **settings), start(algo, hidden_sizes=new, **other)
    assert any(line in problem for problem in widening.problems(state, fresh))


def test_an_optimiser_that_keeps_more_for_each_parameter():
    """A matrix with a row for each parameter has an order that surgery does not know."""
    state, fresh = (start("ppo", hidden_sizes=(size,)) for size in (8, 12))
    state, fresh = (s._replace(opt_state=np.zeros((ravel_pytree(s.params)[0].size, 2))) for s in (state, fresh))
    assert widening.problems(state, fresh) == ["the optimiser's state has a size of its own for each parameter"]
