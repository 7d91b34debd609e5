"""Kernels, computed by JAX operation by operation, give what the plain functions give."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from purerl import backend, dqn, envs, kernels, loops, ppo
from purerl.envs.fleet import fleet
from purerl.formulas import returns
from purerl.kernels import program
from purerl.loops.rollout import init_actors
from purerl.networks.memory import cells
from purerl.types import Outcome, Sample, Situation, TrainState, Transition

KEY = jax.random.key(0)
close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5)


def both(function, *args):
    """What a function gives, as it is traced for a GPU, without kernels and with them."""
    made = []
    for setting in (kernels.OFF, kernels.INTERPRETED):
        with backend.tracing_for("gpu"), kernels.using(setting):
            made.append(jax.jit(lambda *args: function(*args))(*args))
    return made


def is_kernel(function, *args):
    """Whether the program of a function has a kernel."""
    with backend.tracing_for("gpu"), kernels.using(kernels.INTERPRETED):
        return "pallas_call" in str(jax.make_jaxpr(lambda *args: function(*args))(*args))


def moved(state, x, index):
    """Operations that move numbers, over axes that are taken apart (3, 5), that are padded (20) and that are not."""
    rows = x[index]  # [M, 20]
    stacked = jnp.stack([rows[:, :3].sum(axis=1), rows[:, 4], jnp.max(rows, axis=1)], axis=-1)
    wider = jnp.concatenate([stacked, rows[:, 17:], stacked[:, ::-1]], axis=1)  # [M, 9]
    best = jnp.argmax(rows, axis=1), jnp.argmin(stacked, axis=1)
    soft = jax.nn.log_softmax(rows) @ state["w"] + state["b"][None]
    padded = jnp.pad(stacked, ((0, 0), (1, 1))) * jnp.arange(5.0)[None]
    out = {
        "wider": wider,
        "best": best,
        "all": jnp.all(rows > -9, axis=1),
        "padded": padded.T[1:3],
        "turned": soft.T @ rows,
        "gone": jnp.sum(jnp.where(soft > 0, soft, -soft), axis=0, keepdims=True),
    }
    return jax.tree.map(lambda p: p * 2 + jnp.mean(soft), state), out


@pytest.mark.parametrize("size", [20, 48])  # in one part; in three
def test_operations(size):
    keys = jax.random.split(KEY, 3)
    state = {"w": jax.random.normal(keys[0], (20, 5)), "b": jnp.arange(5.0)}
    args = state, jax.random.normal(keys[1], (60, 20)), jax.random.randint(keys[2], (size,), 0, 60)
    step = kernels.fuse(moved, "moved")
    assert is_kernel(step, *args)
    jax.tree.map(close, *both(step, *args))
    several = jax.tree.map(lambda x: jnp.stack([x, x[::-1]]), args)
    jax.tree.map(close, *both(jax.vmap(step), *several))


HEADS = {"discrete": ("CartPole-v1", "tanh"), "gaussian": ("Pendulum-v1", "relu")}


@pytest.mark.rest
@pytest.mark.parametrize("head", HEADS)
def test_a_minibatch(head):
    """Metrics and gradients of PPO's loss in 1,024 random states: a step of size 1 down them is the gradient."""
    name, activation = HEADS[head]
    env = envs.make(name)
    config = ppo.Config(num_envs=16, num_steps=64, num_minibatches=1, num_epochs=1, hidden_sizes=(32, 32))
    config = ppo.Config(**{**vars(config), "activation": activation})
    steep = lambda value, old, target, config: jnp.arcsinh(jnp.square(value - target))  # such as a learned one
    learner = ppo.make_learner(config, env, optimiser=optax.sgd(1.0), value_loss=steep)
    keys = iter(jax.random.split(KEY, 9))
    shape = (64, 16, env.observation_space.shape[0])
    obs, next_obs = (jax.random.normal(next(keys), shape) for _ in range(2))
    with backend.tracing_for("gpu"):
        state = learner.init(next(keys), obs[0])
        noise = learner.noise(next(keys), (64, 16))
        act = jax.vmap(learner.explore, (None, 0, 0))
        action, _, extras = jax.jit(act)(learner.behaviour(state), Situation(obs, ()), noise)
    extras = extras._replace(policy=extras.policy + 0.3 * jax.random.normal(next(keys), extras.policy.shape))
    reward, ended = jax.random.normal(next(keys), (64, 16)), jax.random.bernoulli(next(keys), 0.1, (64, 16))
    trajectory = Transition(obs, action, reward, ended, jnp.zeros_like(ended), next_obs, extras)
    update = lambda *args: learner.update(*args)
    assert is_kernel(update, state, trajectory, KEY)
    (plain, plain_metrics, _), (ours, our_metrics, _) = both(update, state, trajectory, KEY)
    jax.tree.map(close, plain.params, ours.params)
    jax.tree.map(close, plain_metrics, our_metrics)
    gradient = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), state.params, ours.params)
    assert max(jax.tree.leaves(gradient)) > 1e-2


@pytest.mark.rest
def test_an_update_of_action_values_and_whether_it_lives():
    """Two kernels: DQN's whole update, which refreshes the target network or does not, and what becomes of it."""
    env = envs.make("CartPole-v1")
    config = dqn.Config(num_envs=4, batch_size=32, hidden_sizes=(16,), target_period=2)
    learner = dqn.make_learner(config, env)
    keys = jax.random.split(KEY, 4)
    obs, next_obs = jax.random.normal(keys[0], (2, 32, 4))
    action, reward = jax.random.randint(keys[1], (32,), 0, 2), jax.random.normal(keys[2], (32,))
    slot, weight = jnp.zeros(32, jnp.int32), jnp.linspace(0.5, 1.0, 32)
    sample = Sample(Outcome(obs, action, reward, jnp.full(32, 0.9), next_obs, (), ()), slot, slot, weight)
    with backend.tracing_for("gpu"):
        state = jax.jit(learner.init)(KEY, obs)
    state = state._replace(target_params=jax.tree.map(lambda x: 0.5 * x + 0.1, state.params))

    def go_on(age, scale):
        before = state._replace(target_age=age)
        learned, metrics, priority = learner.update(before, sample, keys[3])
        start = TrainState(before, (), (), (), jnp.ones((), bool), KEY)
        return *loops.trainers.survive(start, learned, metrics["loss"] * scale), priority, metrics

    members = jax.vmap(go_on), jnp.array([0, 1, 1]), jnp.array([1.0, 1.0, jnp.nan])
    with backend.tracing_for("gpu"), kernels.using(kernels.INTERPRETED):
        assert str(jax.make_jaxpr(members[0])(*members[1:])).count("pallas_call[") == 2
    plain, ours = both(*members)
    jax.tree.map(close, plain, ours)
    alive, learned = ours[:2]
    assert alive.tolist() == [True, True, False]
    leaf = lambda tree, i: np.asarray(jax.tree.leaves(tree)[1][i])
    online, target = ([leaf(tree, i) for i in range(3)] for tree in (learned.params, learned.target_params))
    first = [np.asarray(jax.tree.leaves(tree)[1]) for tree in (state.params, state.target_params)]
    assert (target[0] == first[1]).all() and (target[1] == online[1]).all() and (online[1] != first[0]).any()
    assert (online[2] == first[0]).all() and (target[2] == first[1]).all()


def test_a_rollout():
    """The same steps, by the same noise; ends of episodes among them."""
    env = envs.make("CartPole-v1", max_steps=5)
    config = ppo.Config(num_envs=3, num_steps=12, hidden_sizes=(16,))
    learner, rows = ppo.make_learner(config, env), fleet(env, 3)
    actors = init_actors(KEY, rows, learner)
    state = learner.init(KEY, actors.obs)
    act = lambda key: loops.rollout.rollout(key, rows, learner, learner.behaviour(state), actors, 12)
    assert is_kernel(act, KEY)
    plain, ours = both(act, KEY)
    jax.tree.map(close, plain, ours)
    assert ours[1].truncated.sum() > 3


def test_returns_and_derivatives():
    """A kernel has the derivatives of the plain function."""
    reward, value = jax.random.normal(KEY, (2, 7))
    last = jnp.arange(7) == 3
    gae = lambda reward: returns.gae(reward, value, value[::-1], 0.9 * jnp.ones(7), last, 0.8)
    assert is_kernel(gae, reward)
    jax.tree.map(close, *both(gae, reward))
    jax.tree.map(close, *both(jax.jacrev(gae), reward))


@pytest.mark.rest
@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_a_memory_and_its_derivatives(kind):
    """A gated cell unrolled over three steps, between which episodes end, and a scan the other way for the gradient."""
    memory = cells.cell(kind, 16)
    keys = jax.random.split(KEY, 4)
    x, last = jax.random.normal(keys[0], (3, 4, 5)), jax.random.bernoulli(keys[1], 0.4, (3, 4))
    carry = jax.tree.map(lambda c: jax.random.normal(keys[2], c.shape), memory.init_carry(4))

    def loss(params, x, carry):
        out, carries, carry = memory.unroll(params, x, carry, last)
        return jnp.sum(jnp.sin(out)) + sum(jnp.sum(jnp.square(c)) for c in jax.tree.leaves((carries, carry)))

    args = jax.value_and_grad(loss, argnums=(0, 1, 2)), memory.init(keys[3], x[0]), x, carry
    with backend.tracing_for("gpu"), kernels.using(kernels.INTERPRETED):
        assert str(jax.make_jaxpr(lambda *args: args[0](*args[1:]), static_argnums=0)(*args)).count("pallas_call") >= 2
    jax.tree.map(close, *both(*args))


@pytest.mark.parametrize(("length", "reverse"), [(1, False), (3, True)])
def test_a_scan_that_counts_and_its_derivative(length, reverse):
    """Of a state of floats, an integer and a bool, and of results likewise; what all steps read is made beforehand."""
    rows, weights = jax.random.normal(KEY, (length, 9)), jax.random.normal(KEY, (9, 9))

    def end(weights, start, rows):
        def step(state, row):
            x, count, odd = state
            x = jnp.tanh(x @ jnp.exp(-jnp.abs(weights)) + row) * jnp.where(odd, 0.5, 1.0)
            return (x, count + 1, ~odd), (jnp.sum(x), count, odd, jnp.argmax(x))

        plain = functools.partial(jax.lax.scan, reverse=reverse)
        state = start, jnp.zeros((), jnp.int32), jnp.zeros((), bool)
        state, out = kernels.scan(step, state, rows, length, "count", plain, reverse)
        return jnp.sum(state[0]) + jnp.sum(jnp.square(out[0])), (state, out)

    args = weights, jnp.ones(9), rows
    assert is_kernel(end, *args)
    jax.tree.map(close, *both(end, *args))
    jax.tree.map(close, *both(jax.grad(end, argnums=(0, 1, 2), has_aux=True), *args))


def test_what_no_kernel_computes_stays_as_it_is():
    def sort(state, x):
        return state + 1, jnp.sort(x)

    args = jnp.zeros(3), jnp.arange(4.0)[::-1]
    assert not is_kernel(kernels.fuse(sort, "sort"), *args)
    jax.tree.map(close, *both(kernels.fuse(sort, "sort"), *args))
    plain = str(jax.make_jaxpr(sort)(*args))
    assert str(jax.make_jaxpr(kernels.fuse(sort, "sort"))(*args)) == plain  # off
    with kernels.using(kernels.ON):
        assert str(jax.make_jaxpr(kernels.fuse(sort, "sort"))(*args)) == plain


def test_what_no_multiprocessor_holds_is_no_kernel():
    double = kernels.fuse(lambda state: (2 * state, ()), "double", samples=False)
    assert is_kernel(double, jnp.ones((512, 512))) and not is_kernel(double, jnp.ones((513, 512)))
    square = kernels.fuse(lambda state, x: (state + x.T @ x, ()), "square")
    for size, fits in ((256, True), (257, False)):
        assert is_kernel(square, jnp.ones((size, size)), jnp.ones((64, size))) == fits


def test_a_part_of_what_no_kernel_computes_is_one():
    def part(state, x):
        return state + jnp.sum(x), x * 2

    def whole(state, x):
        state, twice = kernels.fuse(part, "part")(state, x)
        return state, jnp.sort(twice)

    args = jnp.zeros(()), jnp.arange(4.0)[::-1]
    assert is_kernel(kernels.fuse(whole, "whole"), *args)
    jax.tree.map(close, *both(kernels.fuse(whole, "whole"), *args))


def test_sums_that_wait_for_no_other_share_a_loop():
    """Of a mean, the deviations from it and two sums of these, three loops."""

    def f(state, x):
        centred = x - jnp.mean(x)
        scaled = centred / jnp.sqrt(jnp.mean(jnp.square(centred)))
        return state + jnp.sum(scaled**3), (jnp.max(scaled), jnp.sum(jnp.abs(x)), scaled)

    args = jnp.zeros(()), jax.random.normal(KEY, (64,))
    body = program.body_of(f, *args)
    made = [group for group in program._groups(body, [body.jaxpr.invars[1]]) if group.parts]
    assert [(group.parts, len(group.sums), len(group.rows)) for group in made] == [
        (4, 1, 0),
        (4, 1, 0),
        (4, 3, 1),
    ]
    jax.tree.map(close, *both(kernels.fuse(f, "f"), *args))


def test_rows_that_wait_for_the_last_sum_have_a_loop_of_their_own():
    def f(state, x):
        return state + jnp.sum(x), (2 * x, x - jnp.mean(x))

    args = jnp.zeros(()), jax.random.normal(KEY, (64,))
    body = program.body_of(f, *args)
    made = program._groups(body, [body.jaxpr.invars[1]])
    assert [(len(group.sums), len(group.rows)) for group in made if group.parts] == [(2, 0), (0, 2)]
    jax.tree.map(close, *both(kernels.fuse(f, "f"), *args))


def test_who_gets_kernels():
    with kernels.for_devices("cpu"):
        assert kernels.setting() == kernels.OFF
    with kernels.for_devices("gpu"):
        assert kernels.setting() == kernels.OFF
    with kernels.requested(kernels.AUTO), kernels.for_devices("gpu"):
        assert kernels.setting() == kernels.ON
    with kernels.requested(kernels.AUTO), kernels.for_devices("cpu"):
        assert kernels.setting() == kernels.OFF
