"""Datasets that stay in the host's memory: the samples of a replay that holds them, and three mistakes of others.

Loaders have never drawn the last row (OSUrobotics/KinovaGrasping issue 48), have drawn the same for all workers
(pytorch/pytorch issue 5059), and have repeated batches when a training was resumed (KempnerInstitute/KempnerForge
issue 51).
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from purerl import loops, replay, trees
from purerl.errors import ConfigError
from purerl.replay import storage
from purerl.replay.fixed import on_host, places
from purerl.replay.streamed import Streamed
from purerl.types import Dataset

FRAMES = {"picture": 3, "number": 1}


def episodes(seed, lengths, kinds):
    """Episodes whose pictures ``[2, 3]`` (bool) are stacks of 3, and which end as ``kinds`` say: t or c (cut off)."""
    rng = np.random.default_rng(seed)
    steps, ends = sum(lengths), np.cumsum(lengths) - 1
    obs, final = [], []
    for length in lengths:
        frames = rng.integers(2, size=(length + 1, 2)).astype(bool)
        at = np.arange(length + 1)[:, None] + np.arange(-2, 1)
        stacks = np.moveaxis(frames[np.maximum(at, 0)], 1, -1)
        obs.append(stacks[:-1])
        final.append(stacks[-1])
    terminated, truncated = np.zeros((2, steps), bool)
    terminated[ends], truncated[ends] = [kind == "t" for kind in kinds], [kind == "c" for kind in kinds]
    number = lambda *shape: rng.normal(size=shape).astype(np.float32)
    return Dataset(
        {"picture": np.concatenate(obs), "number": number(steps, 2)},
        number(steps, 1),
        number(steps),
        terminated,
        truncated,
        {"picture": np.stack(final), "number": number(len(lengths), 2)},
    )


PARTS = episodes(0, [3, 1, 4], "ctc"), episodes(1, [2, 2], "tc"), episodes(2, [1, 5], "cc")
STEPS = 18
WHOLE = jax.tree.map(lambda *x: np.concatenate(x), *PARTS)
STREAMS = {"one": replay.streamed(WHOLE), "several": replay.streamed(*PARTS)}


def with_actions(rows):
    """Rows as an algorithm may change them."""
    return rows._replace(extras={"action": rows.action})


@pytest.mark.parametrize("name", STREAMS)
def test_samples_are_those_of_a_replay_that_holds_the_data(name):
    """All steps, also the last one, whose next row is the first one, and those at which episodes end."""
    view = replay.transitions(1, 0.9)
    data = STREAMS[name].changed(with_actions)
    memory = replay.evenly(
        replay.held(WHOLE, FRAMES).changed(with_actions), batch_size=200, view=view, num_frames=FRAMES
    )
    expected = jax.jit(memory.sample)((), jax.random.key(0))
    assert set(np.asarray(expected.slot)) == set(range(STEPS))
    drawn = data.read(np.asarray(expected.slot))
    assert trees.shapes(drawn) == data.like((200,))
    sample = jax.jit(replay.fed(data, view).sample)((), drawn)
    jax.tree.map(np.testing.assert_array_equal, sample, expected)


def test_what_is_put_on_a_device_is_made_on_the_host():
    """Whole stacks, and booleans that are not packed, would not fit where rows do."""
    made = on_host(WHOLE, FRAMES)
    assert all(isinstance(x, np.ndarray) for x in jax.tree.leaves(made))
    every = np.diff(np.flatnonzero(WHOLE.truncated)).min()  # one next observation in so many rows, and its number
    row, number = 1 + 2 * 4, 4  # two packed booleans and two numbers; where a sample begins
    assert trees.nbytes(made) == STEPS * (row + 4 + 4 + 1 + 1 + number) + -(-STEPS // every) * (row + 1)


@pytest.mark.parametrize("name", STREAMS)
def test_pieces_are_all_steps_in_order(name, monkeypatch):
    monkeypatch.setattr(sys.modules["purerl.replay.streamed"], "PIECE_BYTES", 150)
    pieces = list(STREAMS[name].changed(with_actions).pieces())
    assert len({len(piece.reward) for piece in pieces}) <= 2 and len(pieces) > 2
    whole = jax.tree.map(lambda *x: np.concatenate(x), *pieces)
    held = replay.held(WHOLE, FRAMES).rows
    every = jnp.arange(STEPS)[:, None]
    jax.tree.map(np.testing.assert_array_equal, whole.obs, storage.observe(held, every, jnp.zeros_like(every), FRAMES))
    np.testing.assert_array_equal(whole.reward[:, 0], WHOLE.reward)
    np.testing.assert_array_equal(whole.extras["action"], whole.action)


class Numbers:
    """An array of rows that takes no memory: each is its own number."""

    shape, dtype = (), np.dtype(np.int64)

    def __getitem__(self, index):
        return index


def test_numbers_of_steps_up_to_the_last_that_an_int32_counts():
    """The step after the last one is the first, in another part; draws reach all of them."""
    steps, size = np.array([0, 2**31 - 9, 2**31 - 1]), 2**31 - 1
    nothing = [Dataset((), (), Numbers(), *2 * [np.broadcast_to(False, n)], ()) for n in np.diff(steps)]
    data = Streamed(tuple(nothing), steps, np.zeros(3, int), np.zeros(0, int))
    rows = data.read(np.array([2**31 - 2, 2**31 - 10, 2**30], np.int32)).rows
    np.testing.assert_array_equal(rows.reward, [[7, 0], [2**31 - 10, 0], [2**30, 2**30 + 1]])
    slots = np.asarray(places(jax.random.key(0), 10_000, size))
    assert slots.min() >= 0 and slots.max() > 0.999 * size and abs(slots.mean() / size - 0.5) < 0.02


def drawn(keys, iterations, size=STEPS):
    """What iterations draw, one after another ``[iterations, P, 5, 4]``, and the keys after them."""
    stream, slots = loops.Stream(replay.streamed(episodes(0, [size], "c")), 4, 5), []
    for _ in range(iterations):
        keys, slot = stream.draw(keys)
        slots.append(np.asarray(slot))
    return np.stack(slots), keys


def test_every_row_is_drawn_as_often_as_others():
    slots, _ = drawn(jax.random.split(jax.random.key(0), 8), 10)
    counts = np.bincount(slots.reshape(-1), minlength=STEPS)
    assert len(counts) == STEPS and counts.min() > 0.5 * counts.mean() and counts.max() < 1.5 * counts.mean()


def test_members_draw_samples_of_their_own():
    """Each draws what it does alone, and no two draw the same."""
    keys = jax.random.split(jax.random.key(0), 3)
    slots, _ = drawn(keys, 2, 1000)
    for member in range(3):
        np.testing.assert_array_equal(slots[:, [member]], drawn(keys[member][None], 2, 1000)[0])
    assert len({each.tobytes() for each in np.moveaxis(slots, 1, 0)}) == 3


def test_a_batch_is_not_repeated_after_an_interruption():
    """The key of a training's state is all that its further samples follow from."""
    keys = jax.random.split(jax.random.key(0), 2)
    whole, _ = drawn(keys, 6, 1000)
    first, after = drawn(keys, 3, 1000)
    np.testing.assert_array_equal(np.concatenate([first, drawn(after, 3, 1000)[0]]), whole)
    assert len({each.tobytes() for each in whole.reshape(-1, 4)}) == 6 * 2 * 5


def test_what_cannot_be_streamed():
    with pytest.raises(ValueError, match="at least one"):
        replay.streamed()
    endless = WHOLE._replace(reward=np.broadcast_to(np.float32(0), (2**31 - STEPS,)))
    with pytest.raises(ConfigError, match="2,147,483,648 steps"):
        replay.streamed(WHOLE, endless)
    with pytest.raises(ValueError, match="reads 3 rows"):
        replay.fed(STREAMS["one"], replay.transitions(2, 0.9))
    with pytest.raises(ConfigError, match="only trainings from recorded play alone stream it"):
        replay.fixed(STREAMS["one"], batch_size=4, view=replay.transitions(1, 0.9), alpha=0.0)
