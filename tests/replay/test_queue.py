"""The queue of trajectories against a plain deque of them."""

from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import replay, trees
from purerl.types import Transition

STEPS = 3


def trajectory(seed: int, num_envs: int) -> Transition:
    """``[T, B]``, all different; observations and extras hold booleans of several elements."""
    rng = np.random.default_rng(seed)
    shape = STEPS, num_envs
    image = lambda: {"image": rng.random((*shape, 3, 5)) < 0.5, "number": rng.integers(0, 99, shape).astype(np.int16)}
    return Transition(
        obs=image(),
        action=rng.normal(size=(*shape, 2)).astype(np.float32),
        reward=(100 * seed + np.arange(STEPS * num_envs).reshape(shape)).astype(np.float32),
        terminated=rng.random(shape) < 0.3,
        truncated=rng.random(shape) < 0.3,
        next_obs=image(),
        extras={"log_prob": rng.normal(size=shape).astype(np.float32), "legal": rng.random((*shape, 9)) < 0.5},
    )


def oldest_unused(queue, batch_size: int, max_uses: int) -> list[tuple[int, int]]:
    """Age (0: oldest) and environment of those to be sampled."""
    ready = [(age, env) for age, (_, uses) in enumerate(queue) for env in range(len(uses)) if uses[env] < max_uses]
    return ready[:batch_size]


def check(sample, queue, expected, batch_size: int):
    """The draws are ``expected``, whole and bit for bit, and weigh nothing beyond."""
    np.testing.assert_array_equal(sample.weight, np.arange(batch_size) < len(expected))
    assert sample.weight.dtype == np.float32
    for n, (age, env) in enumerate(expected):
        part = jax.tree.map(lambda x, env=env: x[:, env], queue[age][0])
        result = jax.tree.map(lambda x, n=n: x[:, n], sample.items)
        jax.tree.map(np.testing.assert_array_equal, result, part)
        assert jax.tree.map(lambda x: x.dtype, result) == jax.tree.map(lambda x: x.dtype, part)
        assert sample.env[n] == env


@pytest.mark.rest
@pytest.mark.parametrize(
    ("num_slots", "num_envs", "batch_size", "max_uses"), [(4, 2, 3, 1), (3, 3, 4, 2), (1, 4, 2, 3), (5, 1, 5, 1)]
)
def test_against_a_deque(num_slots, num_envs, batch_size, max_uses):
    """Additions and samples in random order, and samples that nobody learned from, which count as no use."""
    buffer = replay.queue(
        num_slots=num_slots, num_steps=STEPS, num_envs=num_envs, batch_size=batch_size, max_uses=max_uses
    )
    state = buffer.init(jax.tree.map(lambda x: x[0, 0], trajectory(0, num_envs)))
    add, update = jax.jit(buffer.add), jax.jit(buffer.update)
    sampled = jax.jit(buffer.sample)
    rng, queue, used = np.random.default_rng(batch_size), deque(maxlen=num_slots), {}
    for seed in range(60):
        if rng.random() < 0.4:
            new = trajectory(seed, num_envs)
            state = add(state, new)
            queue.append((new, np.zeros(num_envs, int)))
        sample = jax.tree.map(np.asarray, sampled(state, jax.random.key(seed)))
        expected = oldest_unused(queue, batch_size, max_uses)
        check(sample, queue, expected, batch_size)
        if rng.random() < 0.7:
            state = update(state, sample, jnp.zeros(batch_size))
            for n, (age, env) in enumerate(expected):
                queue[age][1][env] += 1
                first = sample.items.reward[0, n]
                used[first] = used.get(first, 0) + 1
    assert max(used.values()) == max_uses


def test_each_is_used_twice_and_then_no_more():
    """By hand: two slots of two environments, batches of three, and a third trajectory that writes over the first."""
    buffer = replay.queue(num_slots=2, num_steps=STEPS, num_envs=2, batch_size=3, max_uses=2)
    parts = [trajectory(seed, 2) for seed in (1, 2, 3)]
    state = buffer.init(jax.tree.map(lambda x: x[0, 0], parts[0]))
    step = jax.jit(
        lambda state: (sample := buffer.sample(state, jax.random.key(0)), buffer.update(state, sample, sample.weight))
    )
    seen = []

    def take(state):
        sample, state = step(state)
        seen.append([float(x) for x, weight in zip(sample.items.reward[0], sample.weight, strict=True) if weight])
        return state

    state = take(state)
    for part in parts[:2]:
        state = buffer.add(state, part)
    for _ in range(4):
        state = take(state)
    state = buffer.add(state, parts[2])
    for _ in range(3):
        state = take(state)
    assert seen == [[], [100, 101, 200], [100, 101, 200], [201], [201], [300, 301], [300, 301], []]


def test_booleans_take_a_bit():
    buffer = replay.queue(num_slots=2, num_steps=STEPS, num_envs=4, batch_size=3, max_uses=2)
    item = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[2:], x.dtype), trajectory(0, 4))
    item = item._replace(
        obs=jax.ShapeDtypeStruct((10, 10, 4), bool), next_obs=(), extras=jax.ShapeDtypeStruct((9,), bool)
    )
    trajectories = jax.eval_shape(buffer.init, item).trajectories
    assert trees.nbytes(trajectories.obs) == 2 * STEPS * 4 * 50
    assert trees.nbytes(trajectories.extras) == 2 * STEPS * 4 * 2


def test_what_cannot_be():
    with pytest.raises(ValueError, match="batch_size = 5:"):
        replay.queue(num_slots=2, num_steps=STEPS, num_envs=2, batch_size=5, max_uses=1)
    buffer = replay.queue(num_slots=2, num_steps=STEPS, num_envs=2, batch_size=4, max_uses=1)
    assert buffer.rows == STEPS
    with pytest.raises(ValueError, match=r"a trajectory of \(3, 1\): must be \(3, 2\)"):
        buffer.add(buffer.init(jax.tree.map(lambda x: x[0, 0], trajectory(0, 2))), trajectory(0, 1))
