"""What every memory is: a bundle with a carry."""

from collections.abc import Callable
from typing import NamedTuple

from purerl.types import Array, Key, PyTree


class Memory(NamedTuple):
    """A layer with a ``carry``, ``[B, ...]`` leading, which is zeros at the start of an episode.

    ``unroll`` begins a new episode after each step whose ``last`` is true. Besides what the layer puts out it returns
    the carries as each step leaves them, whatever its ``last``, and the carry with which the next step begins.
    """

    init: Callable[[Key, Array], PyTree]  # (key, x [B, F]) -> params
    init_carry: Callable[[int], PyTree]  # (num_envs) -> carry
    step: Callable[[PyTree, Array, PyTree], tuple[Array, PyTree]]
    # (params, x [..., F], carry [...]) -> (out [..., size], carry [...])
    unroll: Callable[[PyTree, Array, PyTree, Array], tuple[Array, PyTree, PyTree]]
