"""The interface of every recurrent layer: a bundle of functions with a carry; and the layer that has none."""

from collections.abc import Callable
from typing import NamedTuple

from purerl.types import Array, Key, PyTree


class Memory(NamedTuple):
    """A recurrent layer. Its ``carry``, with leading axis ``[B]``, is all zeros at the start of an episode.

    ``unroll`` resets the carry after each step whose ``last`` is true. It returns the outputs; the carry after each
    step, before any reset; and the carry for the step that follows the sequence, after any reset.
    """

    init: Callable[[Key, Array], PyTree]  # (key, x [B, F]) -> params
    init_carry: Callable[[int], PyTree]  # (num_envs) -> carry
    step: Callable[[PyTree, Array, PyTree], tuple[Array, PyTree]]
    # (params, x [..., F], carry [...]) -> (out [..., size], carry [...])
    unroll: Callable[[PyTree, Array, PyTree, Array], tuple[Array, PyTree, PyTree]]
    # (params, x [T, B, F], carry [B], last [T, B]) -> (out [T, B, size], carries [T, B], carry [B])
    # (params, x [T, B, F], carry, last [T, B]) -> (out [T, B, size], carries [T, B, ...], carry)


def forgetful() -> Memory:
    """Makes a memory that remembers nothing: it returns its input, with the carry ``()``."""
    return Memory(
        init=lambda key, x: {},
        init_carry=lambda num_envs: (),
        step=lambda params, x, carry: (x, ()),
        unroll=lambda params, x, carry, last: (x, (), ()),
    )
