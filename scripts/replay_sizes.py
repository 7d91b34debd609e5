"""The replay buffers of published systems: their bytes as they were printed, from shapes, and in purerl's ring.

    python scripts/replay_sizes.py

Nothing is allocated. A row's item is what its system stored, as shapes that give the printed size; where a paper does
not say what else an item held (PPO, SAC, GoBigger) or how long it was (R2D2, IMPALA), that is fitted to it. purerl
keeps each frame once, in its own dtype, with a recurrent carry once a sequence; where a system's contents were not
named, the row has no such figure.
"""

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import scales

from purerl import replay, trees
from purerl.types import Transition

H200 = 139 * 2**30
"""Bytes of one H200's memory."""


def array(shape: tuple[int, ...], dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def step(obs: Any, action: Any = None, extras: Any = ()) -> Transition:
    """One step of one environment."""
    flag = array((), bool)
    return Transition(obs, action or array((), jnp.int32), array(()), flag, flag, obs, extras)


def ring(item: Transition, num_rows: int, num_frames: int = 1, stride: int = 1) -> int:
    """Bytes of a ring of ``num_rows`` steps with priorities."""
    view = replay.sequences(stride, stride) if stride > 1 else replay.transitions(1, 0.99)
    buffer = replay.prioritised(
        num_rows=num_rows, num_envs=1, batch_size=1, view=view, alpha=0.6, num_frames=num_frames
    )
    return trees.nbytes(jax.eval_shape(lambda: buffer.init(item)))


ATARI = step(array((84, 84, 4), jnp.uint8))
LSTM = (array((512,)), array((512,)))
UNITS = {"agent": array((8, 150)), "global": array((8, 295)), "mask": array((8, 14))}
"""What eight units of 3s5z observe."""


class Row(NamedTuple):
    """A system: the items that it kept, one of them as shapes, the bytes that were printed for all, and purerl's."""

    name: str
    capacity: int
    item: Any
    printed: float
    ours: Callable[[], int] | None


ROWS = [
    Row("DQN, Qbert", 400_000, array((4, 84, 84)), 44e9, lambda: ring(ATARI, 400_000, 4)),
    Row(
        "PPO off-policy, Qbert",
        100_000,
        (array((4, 84, 84)), array((7104,), jnp.uint8)),
        12e9,
        lambda: ring(ATARI._replace(extras=array((6,))), 100_000, 4),
    ),
    Row(
        "R2D2, Qbert",
        10_000,
        array((89, 4, 84, 84)),
        100e9,
        lambda: ring(ATARI._replace(extras=LSTM), 10_000 * 89, 4, 89),
    ),
    Row(
        "IMPALA, Qbert",
        100_000,
        array((27, 4, 84, 84)),
        300e9,
        lambda: ring(ATARI._replace(extras=array((6,))), 100_000 * 27, 4),
    ),
    Row(
        "SAC, Hopper",
        1_000_000,
        array((3000,), jnp.uint8),
        3e9,
        lambda: ring(step(array((11,)), array((3,))), 1_000_000),
    ),
    Row(
        "QMIX, 3s5z",
        50_000,
        (UNITS,) * 20,
        14.5e9,
        lambda: ring(step(UNITS, array((8,), jnp.int32)), 50_000 * 10),
    ),
    Row(
        "MASAC, 3s5z",
        1_000_000,
        (UNITS,) * 2,
        29e9,
        lambda: ring(step(UNITS, array((8,), jnp.int32)), 1_000_000),
    ),
    Row("DQN, GoBigger", 100_000, array((400_000,), jnp.uint8), 40e9, None),
    Row(
        "SEED RL, grey frames",
        100_000,
        array((120, 84, 84), jnp.uint8),
        84.67e9,
        lambda: ring(step(array((84, 84), jnp.uint8)), 100_000 * 120),
    ),
]


def from_shapes(row: Row) -> int:
    """Bytes of all items as the system stored them."""
    return row.capacity * trees.nbytes(row.item)


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    scales.add(result)
    return result


def main() -> None:
    parser().parse_args()
    print(f"{'system':<24}{'items':>10}{'printed, GB':>13}{'shapes, GB':>12}{'purerl, GB':>12}{'on an H200':>12}")
    for row in ROWS:
        ours = row.ours and row.ours()
        print(
            f"{row.name:<24}{row.capacity:>10,}{row.printed / 1e9:>13.1f}{from_shapes(row) / 1e9:>12.1f}"
            + (f"{ours / 1e9:>12.2f}{'fits' if ours < H200 else 'too large':>12}" if ours else f"{'-':>12}{'-':>12}")
        )


if __name__ == "__main__":
    main()
