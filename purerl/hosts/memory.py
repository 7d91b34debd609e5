"""Memory that the learner and its workers share: the arrays of each group of environments.

It has no name: a file descriptor leads to it, so nothing of it is left once the processes have ended.
"""

import mmap
import os
import tempfile
from typing import NamedTuple

import numpy as np

from purerl.hosts.bundle import Leaves


class Layout(NamedTuple):
    """The arrays of one environment, each a shape and a dtype: its action, its rewards and flags, its observation."""

    action: tuple[tuple[int, ...], str]
    agents: tuple[int, ...]
    obs: tuple[tuple[tuple[int, ...], str], ...]


class Shared(NamedTuple):
    """The arrays of a group of ``B`` environments.

    ``obs`` has two slots, written by turns: while a step writes one, the other holds the observations before it. Only
    the rows that ended are written in ``next_obs``.
    """

    seeds: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    next_obs: Leaves
    obs: tuple[Leaves, Leaves]


class Memory(NamedTuple):
    """The shared memory: ``began``, when each worker began its present command (`time.monotonic`), and the groups."""

    began: np.ndarray
    groups: tuple[Shared, ...]


def anonymous() -> int:
    """Opens a file without a name and returns its descriptor."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("purerl")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def resize(file: int, layout: Layout, sizes: list[int], num_workers: int, games: int = 0) -> None:
    """Gives a file the bytes that `mapped` takes."""
    os.ftruncate(file, _carve(None, layout, sizes, num_workers, games)[1])


def mapped(file: int, layout: Layout, sizes: list[int], num_workers: int, games: int = 0) -> Memory:
    """Returns the arrays in a file that `resize` made large enough, for groups of ``sizes`` environments.

    Seeds are ``[B]``, or ``[B, games]``.
    """
    return _carve(mmap.mmap(file, 0), layout, sizes, num_workers, games)[0]


def _carve(
    buffer: mmap.mmap | None, layout: Layout, sizes: list[int], num_workers: int, games: int
) -> tuple[Memory, int]:
    """Returns the arrays one after the other, each from a multiple of 64 bytes on, and where the last one ends."""
    end = 0

    def take(shape: tuple[int, ...], dtype: str) -> np.ndarray:
        nonlocal end
        start, end = end, end - (-int(np.prod(shape)) * np.dtype(dtype).itemsize // 64) * 64
        return np.empty(0) if buffer is None else np.ndarray(shape, dtype, buffer, start)

    def observed(size: int) -> Leaves:
        return tuple(take((size, *shape), dtype) for shape, dtype in layout.obs)

    def group(size: int) -> Shared:
        seeds = take((size, games) if games else (size,), "i8")
        action = take((size, *layout.action[0]), layout.action[1])
        reward, terminated, truncated = (take((size, *layout.agents), dtype) for dtype in ("f4", "?", "?"))
        slots = observed(size), observed(size)
        return Shared(seeds, action, reward, terminated, truncated, observed(size), slots)

    return Memory(take((num_workers,), "f8"), tuple(group(size) for size in sizes)), end
