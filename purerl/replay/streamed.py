"""Datasets that stay in the host's memory, from which the host reads the rows of samples for the device."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl import trees
from purerl.errors import ConfigError
from purerl.types import Dataset, PyTree, Transition

PIECE_BYTES = 2**24
"""The most bytes of the rows that `Streamed.pieces` gives at once, if there is more than one."""


class Drawn(NamedTuple):
    """The rows of samples ``[..., N]`` of one step, as the host reads them.

    ``slot`` ``[..., N]`` (int32) is the number of each step in the dataset. ``rows`` ``[..., N, 2]`` are the step and
    the one after it, in the order of the dataset, the first one after the last. Where the step was truncated, the
    second observation is its next observation instead.
    """

    slot: Any
    rows: Transition


@dataclasses.dataclass(frozen=True, eq=False)
class Streamed:
    """A dataset of ``parts``, one after another, whose numpy arrays stay where they are, such as in mapped files.

    ``steps`` are the steps at which the parts begin, and the number of all, ``episodes`` the same in episodes, and
    ``ends`` the steps after which an episode ends. ``change`` is applied to rows ``[T, 1]`` before the learner sees
    them or a sample is read of them. ``checked``: whether the parts are known to be sound, as those of files are.
    """

    parts: tuple[Dataset, ...]
    steps: np.ndarray
    episodes: np.ndarray
    ends: np.ndarray
    change: Callable[[Transition], Transition] = lambda rows: rows
    checked: bool = False

    def changed(self, change: Callable[[Transition], Transition]) -> "Streamed":
        """Returns the dataset whose rows are also changed by ``change``, after what changes them now."""
        before = self.change
        return dataclasses.replace(self, change=lambda rows: change(before(rows)))

    @property
    def size(self) -> int:
        """The number of steps."""
        return int(self.steps[-1])

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        return trees.nbytes(self.parts)

    def like(self, shape: tuple[int, ...]) -> Drawn:
        """Returns what `read` gives for ``shape`` steps, as `jax.ShapeDtypeStruct`."""
        many = lambda x: jax.ShapeDtypeStruct((*shape, 2, *x.shape[1:]), x.dtype)
        return Drawn(jax.ShapeDtypeStruct(shape, np.int32), jax.tree.map(many, rows_of(self.parts[0])))

    def read(self, slot: np.ndarray) -> Drawn:
        """Reads the rows of samples at the steps ``slot`` (int32, of any shape)."""
        both = np.stack([slot, (slot + 1) % self.size], axis=-1)
        rows = self._gather([rows_of(part) for part in self.parts], self.steps, both)
        cut = np.nonzero(rows.truncated[..., 0])
        episode = np.searchsorted(self.ends, slot[cut], side="right")
        final = self._gather([part.final_obs for part in self.parts], self.episodes, episode)
        for obs, after in zip(jax.tree.leaves(rows.obs), jax.tree.leaves(final), strict=True):
            obs[(*cut, 1)] = after
        return Drawn(slot, rows)

    def pieces(self) -> Iterator[Transition]:
        """Yields all steps in order, as rows ``[T, 1]``, a few megabytes at a time."""
        most = max(1, PIECE_BYTES // max(1, trees.nbytes(self.like((1,)).rows) // 2))
        for first in range(0, self.size, most):
            at = np.arange(first, min(first + most, self.size))[:, None]
            yield self.change(self._gather([rows_of(part) for part in self.parts], self.steps, at))

    def _gather(self, parts: list[PyTree], begins: np.ndarray, index: np.ndarray) -> PyTree:
        """Reads the elements ``index`` of arrays that are in ``parts``, which begin at ``begins``."""
        if len(parts) == 1:
            return trees.take(parts[0], index)
        part_of = np.searchsorted(begins, index, side="right") - 1

        def leaf(*arrays: np.ndarray) -> np.ndarray:
            whole = np.empty((*index.shape, *arrays[0].shape[1:]), arrays[0].dtype)
            for number, array in enumerate(arrays):
                mine = part_of == number
                whole[mine] = array[index[mine] - begins[number]]
            return whole

        return jax.tree.map(leaf, *parts)


def streamed(*parts: Dataset) -> Streamed:
    """Makes a dataset that stays in the host's memory of one or several, whose episodes follow one another.

    It is an argument of ``make_trainer`` of algorithms that learn from recorded play alone, for trainings by
    `train_in_chunks`. The arrays may be mapped files.

    Raises:
        ConfigError: There are more steps than an int32 can count, or the flags of a part are not as many as its steps.
        ValueError: There is no part.
    """
    if not parts:
        raise ValueError("parts: there must be at least one")
    steps = np.cumsum([0, *(len(part.reward) for part in parts)])
    if steps[-1] >= 2**31:
        raise ConfigError(f"data: {steps[-1]:,} steps; must be fewer than {2**31:,}")
    arrays = tuple(jax.tree.map(np.asarray, part) for part in parts)
    for part in arrays:
        if not part.reward.shape == part.terminated.shape == part.truncated.shape:
            raise ConfigError("data: rewards and flags are not of one shape, a number for each step")
    ends = [np.flatnonzero(np.logical_or(part.terminated, part.truncated)) + 1 for part in arrays]
    episodes = np.cumsum([0, *map(len, ends)])
    return Streamed(arrays, steps, episodes, np.concatenate([x + a for x, a in zip(ends, steps, strict=False)]))


def rows_of(part: Dataset) -> Transition:
    """Returns the steps of a dataset as a transition of the same arrays, without next observations."""
    return Transition(part.obs, part.action, part.reward, part.terminated, part.truncated, next_obs=(), extras=())
