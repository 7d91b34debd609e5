"""Sockets: at first each algorithm is what it was, bit for bit; and what is learned keeps the conditions it must."""

import dataclasses
import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiling import AS_SHIPPED, core, for_bits

from purerl import appo, compiler_options, counters, dqn, envs, impala, ppo
from purerl.algos import ALGORITHMS
from purerl.formulas import losses
from purerl.formulas.returns import vtrace_weights
from purerl.learned import ENV_SOCKET_NAMES, sockets
from purerl.learners.parts import time_aware

CONFIGS = {
    ppo: ppo.Config(total_steps=4 * 64 * 4, num_steps=64, hidden_sizes=(16,)),
    dqn: dqn.Config(total_steps=512 + 64 * 13, warmup_steps=512, capacity=2048, hidden_sizes=(16,)),
    impala: impala.Config(total_steps=160 * 50, lag=2.0, max_lag=2, hidden_sizes=(16,)),
}
CASES = [("value-loss", ppo), ("policy-drift", ppo), ("td-loss", dqn), ("vtrace-weight", impala)]
CASES = [(name, algo, ()) for name, algo in [*CASES, ("optimiser", ppo), ("optimiser", dqn)]]
CASES += [("policy-drift", ppo, (("time_aware", True),))]


def changed(meta_params, size=0.5):
    """Meta-parameters with a learned function in them."""
    leaves, structure = jax.tree.flatten(meta_params)
    keys = jax.random.split(jax.random.key(5), len(leaves))
    moved = [x + size * jax.random.normal(key, x.shape) for x, key in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(structure, moved)


def plain(meta_params, config):
    return {}


@functools.cache
def training(algo, parts):
    """``train(meta_params, key)``: parameters after some 50 updates. Bits are those of any other program; of V-trace's
    weights where no product is joined with a sum, which some processors do in one program and not in the other."""
    config, env = CONFIGS[algo], envs.make("CartPole-v1")
    train = lambda given, key: core(algo.make_train(config, env, **parts(given, config))(key).state).params
    options = for_bits() if algo is impala else AS_SHIPPED | compiler_options()
    return jax.jit(train, compiler_options=options)


@pytest.mark.weekly
@pytest.mark.parametrize(("name", "algo", "settings"), CASES)
def test_begins_as_the_algorithm(key, name, algo, settings):
    assert CONFIGS[algo].total_updates >= 48
    socket = sockets.make(name, **dict(settings))
    meta_params = socket.init(jax.random.key(1))
    train = training(algo, socket.parts)
    before, after, learned = training(algo, plain)((), key), train(meta_params, key), train(changed(meta_params), key)
    jax.tree.map(np.testing.assert_array_equal, after, before)
    assert all(np.any(a != b) for a, b in zip(jax.tree.leaves(learned), jax.tree.leaves(before), strict=True))
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(learned))


CONFIG = SimpleNamespace(total_steps=10**6, clip_epsilon=0.2, huber_delta=1.0, trace_lambda=0.9, rho_bar=1.0, c_bar=1.0)


@pytest.mark.parametrize("passed", [None, 0.0, 1.0])
@pytest.mark.parametrize("size", [0.0, 0.1, 1.0, 10.0])
def test_learned_drift_is_one(size, passed):
    """Mirror learning's conditions: never negative, zero and flat at ratio 1; with the first parameters PPO's. At any
    time, too, where a drift is aware of that."""
    socket = sockets.policy_drift(time_aware=passed is not None)
    meta_params = changed(socket.init(jax.random.key(0)), size)
    given = time_aware.then(socket.parts(meta_params, CONFIG)["objective"], CONFIG, passed)
    objective = jax.jit(lambda *x: given(*x, CONFIG))
    log_ratio, advantage = (x.reshape(-1) for x in jnp.meshgrid(jnp.linspace(-3, 3, 61), jnp.linspace(-4, 4, 33)))
    drift = jnp.exp(log_ratio) * advantage - objective(log_ratio, advantage)
    assert np.min(drift) >= -1e-5
    slope = jax.vmap(jax.grad(objective))
    here = jnp.linspace(-4, 4, 33)
    np.testing.assert_allclose(objective(jnp.zeros(33), here), here, rtol=1e-6)
    np.testing.assert_allclose(slope(jnp.zeros(33), here), here, rtol=1e-6)
    ppo_objective = losses.clipped_surrogate(log_ratio, advantage, CONFIG)
    assert np.array_equal(objective(log_ratio, advantage), ppo_objective) == (size == 0)


def test_drift_features_by_hand():
    log_ratio, advantage = np.array([0.3, -0.7]), np.array([2.0, -1.5])
    away = 1 - np.exp(log_ratio)
    expected = [log_ratio, log_ratio**2, away, away**2]
    expected += [x * advantage for x in expected]
    np.testing.assert_allclose(
        sockets.drift_features(jnp.asarray(log_ratio), jnp.asarray(advantage)), expected, rtol=1e-5
    )
    age = jnp.float32(0.25), jnp.float32(np.log(1e6))
    aware = sockets.drift_features(jnp.asarray(log_ratio), jnp.asarray(advantage), *age)
    by_hand = [*expected, *(0.25 * x for x in expected), *(np.log(1e6) * x for x in expected)]
    np.testing.assert_allclose(aware, by_hand, rtol=1e-5)
    ratio = np.exp(log_ratio)
    gone = np.maximum((ratio - np.clip(ratio, 0.8, 1.2)) * advantage, 0)
    np.testing.assert_allclose(
        sockets.clip_drift(jnp.asarray(log_ratio), jnp.asarray(advantage), CONFIG), gone, atol=1e-6
    )


@pytest.mark.weekly
@pytest.mark.parametrize("algo", [ppo, appo], ids=lambda algo: algo.name)
def test_an_objective_knows_the_age_of_its_agent(algo, key):
    """From 0 in the first iteration to 1 in the last, and the length; a plain one changes no state."""
    config, env = algo.Config(total_steps=4 * 512, num_steps=64, hidden_sizes=(4,)), envs.make("CartPole-v1")
    config = dataclasses.replace(config, num_envs=8, num_epochs=1, num_minibatches=1, entropy_coef=0.0, value_coef=0.0)

    def at(lifetime):
        """An objective whose value, the loss of the policy, is what it is told."""
        age = lifetime.passed + 100 * lifetime.length
        return lambda log_ratio, advantage, config: -age + 0 * log_ratio

    result = jax.jit(algo.make_train(config, env, objective=time_aware.Timed(at)))(key)
    expected = np.arange(4) / 3 + 100 * np.log(4 * 512)
    np.testing.assert_allclose(result.metrics["policy_loss"], expected, rtol=1e-6)
    assert counters.number(result.state.learner.iterations) == 4
    plain = jax.eval_shape(algo.make_learner(config, env).init, key, jnp.ones((8, 4)))
    assert type(plain) is type(core(result.state))


@pytest.mark.parametrize("base", sockets.VALUE_LOSSES)
def test_value_loss_begins_as_its_base(base):
    socket = sockets.value_loss(base)
    loss = socket.parts(socket.init(jax.random.key(0)), CONFIG)["value_loss"]
    value, old, target = jax.random.normal(jax.random.key(1), (3, 64))
    given = loss(value, old, target, CONFIG)
    np.testing.assert_array_equal(given, sockets.VALUE_LOSSES[base](value, old, target, CONFIG))
    others = [other(value, old, target, CONFIG) for name, other in sockets.VALUE_LOSSES.items() if name != base]
    assert not any(np.array_equal(given, other) for other in others)


@pytest.mark.rest
@pytest.mark.parametrize("base", sockets.VALUE_LOSSES)
def test_value_loss_is_anchored(base):
    """Far from the target it falls towards it, whatever was learned."""
    socket = sockets.value_loss(base)
    loss = socket.parts(changed(socket.init(jax.random.key(0)), 1.0), CONFIG)["value_loss"]
    slope = jax.vmap(jax.grad(lambda value: loss(value, value, 0.0, CONFIG)))
    away = jnp.array([-1e4, -1e3, 1e3, 1e4])
    assert np.all(np.sign(slope(away)) == np.sign(away))


def test_value_loss_has_its_slope_at_no_error():
    """That of its neighbours: a value that equals its target is learned from, too."""
    socket = sockets.value_loss()
    loss = socket.parts(changed(socket.init(jax.random.key(0)), 1.0), CONFIG)["value_loss"]
    slope = jax.vmap(jax.grad(lambda value: loss(value, value, 0.0, CONFIG)))(jnp.array([-1e-5, 0.0, 1e-5]))
    assert abs(slope[1]) > 0.01
    np.testing.assert_allclose(slope, slope[1], rtol=1e-2)


def test_learned_weights_stay_bounded():
    log_ratio = jnp.linspace(-20, 20, 101)
    socket = sockets.vtrace_weight()
    for size in (0.0, 1.0, 30.0):
        weights = socket.parts(changed(socket.init(jax.random.key(0)), size), CONFIG)["weights"]
        rho, c = weights(log_ratio, CONFIG)
        plain = vtrace_weights(log_ratio, 0.9, 1.0, 1.0)
        assert np.all(rho >= plain[0] / 2.72) and np.all(rho <= plain[0] * 2.72)
        assert np.all(c >= plain[1] / 2.72) and np.all(c <= 1.0)


@pytest.mark.rest
def test_learned_optimiser_sees_the_step_alone():
    """Its change is a function of Adam's direction: twice the learning rate is twice the step."""
    socket = sockets.optimiser()
    meta_params = changed(socket.init(jax.random.key(0)))
    grads = jnp.array([0.1, -0.2, 0.3])

    def step(learning_rate):
        config = dataclasses.replace(CONFIGS[ppo], learning_rate=learning_rate)
        made = socket.parts(meta_params, config)["optimiser"]
        return made.update(grads, made.init(grads), grads)[0]

    np.testing.assert_allclose(step(2e-3), 2 * step(1e-3), rtol=1e-5)
    assert np.all(np.isfinite(step(1e-3)))


def test_every_socket_has_algorithms():
    """And every algorithm's sockets exist, with an option of their own each."""
    own = {name for algo in ALGORITHMS.values() for name in algo.sockets}
    assert own.isdisjoint(ENV_SOCKET_NAMES) and set(sockets.SOCKETS) == own | set(ENV_SOCKET_NAMES)
    for name in sockets.SOCKETS:
        socket = sockets.make(name)
        assert socket.name == name and socket.option and socket.baselines
        assert sockets.algorithms(name)[0] == socket.algo and name in sockets.places(socket.algo)
        assert (set(sockets.algorithms(name)) == set(ALGORITHMS)) == (name in ENV_SOCKET_NAMES)
