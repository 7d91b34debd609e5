"""Counters and schedules beyond 2^31 updates, against Python's integers; and in the programs of whole trainings."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from demos import blank

from purerl import counters, envs, replay
from purerl.algos import ALGORITHMS
from purerl.counters import Count
from purerl.formulas import schedules
from purerl.learners.parts import gradients
from purerl.types import Transition

EDGES = [0, 1, 2**24 - 1, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**33 - 1, 10**11, 10**13, 2**63]
TOTAL = 195_312_500_000
"""Updates of PPO in 1e11 frames, at 4 environments of 32 steps, 250 a batch."""


def many(numbers):
    """A `Count` ``[len(numbers)]``."""
    return jax.tree.map(lambda *x: jnp.stack(x), *map(counters.of, numbers))


def test_against_integers():
    result = many(EDGES)
    after = jax.jit(counters.increment)(result)
    assert [counters.number(Count(*words)) for words in zip(*after, strict=True)] == [n + 1 for n in EDGES]
    np.testing.assert_allclose(jax.jit(counters.real)(result), np.float64(EDGES), rtol=2**-23)
    for number in EDGES:
        assert counters.reached(result, number).tolist() == [n >= number for n in EDGES]


def test_real_never_falls():
    numbers = np.unique(np.array([n + i for n in EDGES[2:] for i in range(-600, 600)], np.uint64))
    result = Count(jnp.uint32(numbers % 2**32), jnp.uint32(numbers // 2**32))
    assert np.all(np.diff(np.asarray(counters.real(result))) >= 0)


@pytest.mark.parametrize("total", [1, 3, 31, 3904, 10**6, 2**24 + 1])
def test_learning_rate_is_that_of_optax(total):
    """Bit for bit until the end, so that no training changed with the counter."""
    numbers = np.unique(np.linspace(0, total - 1, 2000).astype(np.int32))
    ours, theirs = schedules.linear_decay(2.5e-4, 1.0, total), optax.linear_schedule(2.5e-4, 0.0, total)
    result = jax.jit(jax.vmap(ours))(Count(jnp.uint32(numbers), jnp.zeros(numbers.shape, jnp.uint32)))
    np.testing.assert_array_equal(result, jax.jit(jax.vmap(theirs))(numbers))


@pytest.mark.parametrize("total", [3, 31, 10**6, 2**31 - 1, 2**31, TOTAL, 10**13])
def test_learning_rate_falls_to_zero_and_stays(total):
    """Along a training, at its end, and after twice as many updates."""
    numbers = sorted({total * i // 100 for i in range(201)} | {n for n in EDGES if n <= 2 * total})
    result = np.asarray(jax.jit(jax.vmap(schedules.linear_decay(1e-3, 1.0, total)))(many(numbers)))
    expected = 1e-3 * np.clip(1 - np.array([n / total for n in numbers]), 0, 1)
    np.testing.assert_allclose(result, expected, atol=1e-3 * 2**-22)
    assert np.all(np.diff(result) <= 0) and np.all(result >= 0) and result[0] == np.float32(1e-3)


def test_epsilon_past_its_end():
    """From 1 to 0 over half a training of 1e11 updates, and 0 at twice its length."""
    epsilon = lambda count: schedules.anneal(1.0, 0.0, schedules.progress(count, 0.5 * 10**11))
    result = jax.jit(jax.vmap(epsilon))(many([0, 2**31, 25 * 10**9, 5 * 10**10, 10**11, 2 * 10**11]))
    np.testing.assert_allclose(result, [1.0, 1 - 2**31 / 5e10, 0.5, 0.0, 0.0, 0.0], atol=1e-6)


@pytest.mark.parametrize("adam", [optax.scale_by_adam, optax.scale_by_radam])
def test_steps_beyond_int32(adam):
    """At update 2^31 the step has the schedule's size; optax's own count stands still, which changes no bit."""
    optimiser = optax.chain(adam(), gradients.descent(schedules.linear_decay(1.0, 1.0, 2**32)))
    before = optimiser.init(jnp.zeros(3))
    moments = before[0]._replace(count=jnp.int32(2**31 - 1), mu=jnp.ones(3), nu=jnp.ones(3))
    update = jax.jit(optimiser.update)
    step, after = update(jnp.ones(3), (moments, gradients.Descent(counters.of(2**31))))
    np.testing.assert_allclose(step, -0.5, rtol=1e-5)
    assert counters.number(after[1].updates) == 2**31 + 1
    sooner = moments._replace(count=jnp.int32(10**6))
    np.testing.assert_array_equal(update(jnp.ones(3), (sooner, gradients.Descent(counters.of(2**31))))[0], step)


@pytest.mark.weekly
@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_every_algorithm_can_be_that_long(name):
    """An iteration is traced, nothing compiled: no count of the config overflows, and none is narrow in the state."""
    algorithm = ALGORITHMS[name]
    env = next(
        env for env in map(envs.make, ("CartPole-v1", "Pendulum-v1")) if not algorithm.problems(algorithm.Config(), env)
    )
    config = algorithm.Config(total_steps=10**13)
    trainer = algorithm.make_trainer(config, env, **blank(algorithm, config, env))
    state = jax.eval_shape(trainer.init, jax.random.key(0))
    after, _ = jax.eval_shape(trainer.step, state)
    assert after == state and after.iteration.low.dtype == after.iteration.high.dtype == jnp.uint32
    assert 0 <= 10**13 - trainer.frames(algorithm.Config(total_steps=10**13).num_iterations) < 10**6


def test_weights_of_a_replay_beyond_int32():
    """Half way through 2^33 updates the exponent is a half, and the update after is counted."""
    view = replay.transitions(1, 0.9)
    shape = {"num_rows": 8, "num_envs": 1, "batch_size": 32, "view": view}
    buffer = replay.prioritised(**shape, alpha=1.0, beta=0.0, beta_end=1.0, num_updates=2**33)
    zero, no = jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((), bool)
    state = buffer.init(Transition(zero, zero, zero, no, no, (), ()))
    priorities = state.sums[0].at[0, 1:3].set(jnp.array([1.0, 4.0]))
    state = state._replace(
        ring=state.ring._replace(filled=jnp.int32(8)),
        sums=(priorities, *state.sums[1:]),
        updates=counters.of(2**32),
    )
    sample = jax.jit(buffer.sample)(state, jax.random.key(0))
    weight = {int(s): float(w) for s, w in zip(sample.slot, sample.weight, strict=True)}
    np.testing.assert_allclose([weight[0], weight[1]], [1.0, 4**-0.5], rtol=1e-4)
    state = jax.jit(buffer.update)(state, sample, jnp.ones(32))
    assert counters.number(state.updates) == 2**32 + 1
