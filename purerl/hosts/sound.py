"""Checks of what an environment of the host returns."""

import math
from typing import Any

import numpy as np

from purerl.hosts.bundle import Leaves, Turn


class InvalidData(ValueError):
    """A returned value that is no observation, reward or flag. The text says which it is."""


def sound_turn(turn: Turn, shape: tuple[int, ...], like: Leaves, first: int = 0) -> Turn:
    """Returns ``turn`` in the dtypes of ``like``, observations of the same environments.

    Args:
        turn: What a step returned.
        shape: The shape of reward and flags, ``[B]`` or ``[B, N]``.
        like: Observations of the right shapes and dtypes.
        first: The number of the first environment, for the error.

    Raises:
        InvalidData: Unless it is a `Turn` whose reward and flags have ``shape``, whose observations have the shapes of
            ``like`` and dtypes that numpy casts to theirs as of the same kind, whose numbers are finite and whose flags
            exclude each other.
    """
    if not isinstance(turn, Turn):
        raise InvalidData(f"a step is a {type(turn).__name__}, must be a Turn")
    reward = _finite(_cast(turn.reward, shape, np.dtype(np.float32), "reward"), first, "the reward")
    terminated = _cast(turn.terminated, shape, np.dtype(np.bool_), "terminated")
    truncated = _cast(turn.truncated, shape, np.dtype(np.bool_), "truncated")
    both = terminated & truncated
    if np.count_nonzero(both):
        raise InvalidData(f"environment {first + np.argwhere(both)[0, 0]} is both terminated and truncated")
    obs = sound_obs(turn.obs, like, first)
    same = turn.next_obs is turn.obs
    return Turn(obs if same else sound_obs(turn.next_obs, like, first), reward, terminated, truncated, obs, turn.cut)


def sound_obs(obs: Leaves, like: Leaves, first: int = 0) -> Leaves:
    """Returns ``obs`` in the shapes and dtypes of ``like``; raises `InvalidData` as `sound_turn` does."""
    if not isinstance(obs, tuple) or len(obs) != len(like):
        raise InvalidData(f"observations are {_kind(obs)}, must be a tuple of {len(like)} arrays")
    if wrong := [x for x in obs if not isinstance(x, np.ndarray)]:
        raise InvalidData(f"an observation is {_kind(wrong[0])}, must be an array")
    names = ["observation"] if len(like) == 1 else [f"leaf {i} of the observation" for i in range(len(like))]
    return tuple(
        _finite(_cast(x, y.shape, y.dtype, name), first, f"the {name}")
        for x, y, name in zip(obs, like, names, strict=True)
    )


def _cast(x: Any, shape: tuple[int, ...], dtype: np.dtype, name: str) -> np.ndarray:
    if isinstance(x, np.ndarray) and x.shape == shape:
        if x.dtype == dtype:
            return x
        if np.can_cast(x.dtype, dtype, "same_kind"):
            with np.errstate(over="ignore"):  # an overflow is infinite, and reported
                return x.astype(dtype)
    raise InvalidData(f"{name} is {_kind(x)}, must be {dtype} {list(shape)}")


def _finite(x: np.ndarray, first: int, name: str) -> np.ndarray:
    """Returns ``x``. Its elements are checked only if the sum of its squares, which takes less time, is not finite."""
    if x.dtype.kind == "f" and not math.isfinite(np.vdot(x, x)):
        finite = np.isfinite(x)
        if not finite.all():
            raise InvalidData(f"{name} of environment {first + np.argwhere(~finite)[0, 0]} is not finite")
    return x


def _kind(x: Any) -> str:
    if isinstance(x, np.ndarray):
        return f"{x.dtype} {list(x.shape)}"
    return f"a {type(x).__name__}{f' of {len(x)}' if isinstance(x, tuple) else ''}"
