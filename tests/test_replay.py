"""The ring against a plain deque: what it holds, which sequences it draws, and how often."""

from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from purerl import replay
from purerl.types import Transition


def encoded(first, num_steps, num_envs, truncated=None, terminated=None):
    """A trajectory whose observations are (1 + time, environment); 0 is what an empty row holds."""
    time, env = np.meshgrid(np.arange(first, first + num_steps), np.arange(num_envs), indexing="ij")
    never = np.zeros((num_steps, num_envs), bool)
    return Transition(
        obs={"code": np.stack([1 + time, env], axis=-1).astype(np.int16)},
        action=(time % 3).astype(np.int32),
        reward=(time + 0.5 * env).astype(np.float32),
        terminated=never if terminated is None else terminated,
        truncated=never if truncated is None else truncated,
        next_obs={"code": np.full((num_steps, num_envs, 2), -1, np.int16)},
        extras=(),
    )


def ring(num_rows, num_envs, length, batch_size):
    buffer = replay.uniform(num_rows=num_rows, num_envs=num_envs, length=length, batch_size=batch_size)
    item = jax.tree.map(lambda x: x[0, 0], encoded(0, 1, num_envs))
    return buffer.init(item), jax.jit(buffer.add), jax.jit(buffer.sample)


@pytest.mark.parametrize(
    ("num_rows", "num_envs", "num_steps", "length"),
    [(12, 3, 4, 2), (12, 1, 1, 2), (6, 2, 6, 2), (12, 2, 3, 5), (4, 3, 2, 4), (5, 2, 1, 1)],
)
def test_against_a_deque(num_rows, num_envs, num_steps, length):
    """Every draw is a sequence of the deque's, whatever was added: little, exactly all, or many times over."""
    rng = np.random.default_rng(num_rows + num_steps)
    state, add, sample = ring(num_rows, num_envs, length, 64)
    held = deque(maxlen=num_rows)
    for i in range(3 * num_rows // num_steps + 1):
        shape = num_steps, num_envs
        terminated, truncated = rng.random(shape) < 0.2, rng.random(shape) < 0.2
        trajectory = encoded(i * num_steps, *shape, truncated, terminated & ~truncated)
        state = add(state, trajectory)
        held.extend(jax.tree.map(lambda x, t=t: x[t], trajectory) for t in range(num_steps))
        if len(held) < length:
            continue
        found = jax.tree.map(np.asarray, sample(state, jax.random.key(i)))
        code = found.items.obs["code"]
        assert code.shape == (length, 64, 2) and code.dtype == np.int16
        starts = code[0, :, 0] - held[0].obs["code"][0, 0]
        assert np.all((starts >= 0) & (starts <= len(held) - length))
        for n, (start, env) in enumerate(zip(starts, found.env, strict=True)):
            rows = [jax.tree.map(lambda x, env=env: x[env], held[start + k]) for k in range(length)]
            for k, row in enumerate(rows):
                item = jax.tree.map(lambda x, k=k, n=n: x[k, n], found.items)
                jax.tree.map(np.testing.assert_array_equal, item, replay._kept(row))
            assert found.weight[n] == (not any(row.truncated for row in rows[:-1]))
        np.testing.assert_array_equal(found.slot, (code[0, :, 0] - 1) % num_rows)


@pytest.mark.parametrize("adds", [1, 2, 3, 5])
def test_all_sequences_are_equally_likely(adds):
    """Before the ring is full, when it just is, and after it wrapped; the write head is never spanned."""
    state, add, sample = ring(6, 3, 2, 4096)
    for i in range(adds):
        state = add(state, encoded(2 * i, 2, 3))
    found = sample(state, jax.random.key(adds))
    code = np.asarray(found.items.obs["code"])
    np.testing.assert_array_equal(code[1], code[0] + [1, 0])
    filled = min(2 * adds, 6)
    counts = np.unique(code[0], axis=0, return_counts=True)[1]
    assert len(counts) == (filled - 1) * 3
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


def test_only_a_truncation_before_the_last_step_voids_a_sequence():
    state, add, sample = ring(2, 3, 2, 64)
    terminated = np.array([[True, False, False], [False, False, True]])
    truncated = np.array([[False, True, False], [True, False, False]])
    found = sample(add(state, encoded(0, 2, 3, truncated, terminated)), jax.random.key(0))
    assert set(np.asarray(found.env)) == {0, 1, 2} and found.weight.dtype == jnp.float32
    np.testing.assert_array_equal(found.weight, np.asarray(found.env) != 1)


def test_counters_never_wrap():
    """Position and fill stay within the ring for ever, so that nothing can reach 2^31."""
    state, add, _ = ring(4, 1, 2, 1)
    for i in range(7):
        state = add(state, encoded(2 * i, 2, 1))
        assert state.position == 2 * (i + 1) % 4 and state.filled == min(2 * (i + 1), 4)


def test_many_rows_are_sampled_to_the_end():
    """The index of a sequence needs all of its 31 bits: nothing wraps near the largest ring."""
    num_rows = 2**30
    buffer = replay.uniform(num_rows=num_rows, num_envs=1, length=2, batch_size=2000)
    blank = replay.Item(*(jnp.zeros((1, 1)) for _ in range(3)), *(jnp.zeros((1, 1), bool) for _ in range(2)))
    position = num_rows - 2
    state = replay.RingState(blank, jnp.int32(position), jnp.int32(num_rows))
    slot = np.asarray(jax.jit(buffer.sample)(state, jax.random.key(0)).slot, np.int64)
    age = (slot - position) % num_rows
    assert slot.min() >= 0 and age.max() <= num_rows - 2
    assert scipy.stats.kstest(age, scipy.stats.uniform(0, num_rows).cdf).pvalue > 1e-3


def test_what_cannot_be():
    with pytest.raises(ValueError, match="num_rows = 1: must hold"):
        replay.uniform(num_rows=1, num_envs=4, length=2, batch_size=8)
    with pytest.raises(ValueError, match="below 2\\^31"):
        replay.uniform(num_rows=2**20, num_envs=2**11, length=2, batch_size=8)
    state, add, _ = ring(4, 1, 2, 1)
    with pytest.raises(ValueError, match="multiple of the trajectory's 3 steps"):
        add(state, encoded(0, 3, 1))
