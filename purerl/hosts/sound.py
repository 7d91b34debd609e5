"""Checks of what an environment of the host returns."""

import math
import warnings
from typing import Any

import numpy as np

from purerl.hosts.bundle import Leaves, Turn

# What overflows is infinite, which `sound_turn` reports; `numpy.errstate` would take longer than the cast.
warnings.filterwarnings("ignore", "overflow encountered in cast", RuntimeWarning, __name__)


class InvalidData(ValueError):
    """A value returned by an environment that is no observation, reward, flag or mask. The text says which it is.

    ``row`` is the number of the environment among those that were stepped (None: not known), which the text names.
    """

    def __init__(self, text: str, row: int | None = None):
        super().__init__(text)
        self.row = row

    def __str__(self) -> str:
        text: str = self.args[0]
        return text if self.row is None else f"environment {self.row}: {text}"

    def among(self, numbers: Any) -> "InvalidData":
        """Returns the error with the number of its environment, ``numbers[row]``."""
        return InvalidData(self.args[0], None if self.row is None else int(numbers[self.row]))

    def after(self, first: int) -> "InvalidData":
        """Returns the error where ``first`` environments come before those that were stepped."""
        return InvalidData(self.args[0], None if self.row is None else first + self.row)


def told_of(error: BaseException, row: int) -> None:
    """Keeps in ``error`` the number of the environment that raised it, which `who` reads."""
    vars(error)["row"] = row


def who(error: BaseException, first: int = 0) -> str:
    """Returns who raised ``error``: the environment of its ``row``, if it has one."""
    row = getattr(error, "row", None)
    return "the environment" if row is None else f"environment {first + row}"


def fitted(x: np.ndarray, dtype: np.dtype, name: str, each: int = 1) -> np.ndarray:
    """Returns ``x [n, ...]`` in ``dtype``. Numbers too large for a float become infinite, which `sound_turn` reports.

    Args:
        x: An array of any dtype.
        dtype: A dtype of booleans, integers or floats.
        name: What it is, for the error.
        each: How many consecutive elements of ``x`` one environment has.

    Raises:
        InvalidData: If a value is of another kind, or an integer that ``dtype`` cannot hold.
    """
    if x.dtype == dtype:
        return x
    if x.dtype.kind not in ("fiub" if dtype.kind == "f" else "iub"):
        raise InvalidData(f"the {name} is {x.dtype}, must be {dtype}")
    y = x.astype(dtype)
    if dtype.kind == "f" or np.can_cast(x.dtype, dtype, "safe"):
        return y
    same = y.astype(x.dtype).tobytes() == x.tobytes() if x.dtype.kind == dtype.kind else bool((x == y).all())
    if not same:
        at = tuple(np.argwhere(x != y)[0])
        raise InvalidData(f"{x[at]} in the {name} does not fit into {dtype}", int(at[0]) // each)
    return y


def sound_turn(turn: Turn, shape: tuple[int, ...], like: Leaves, first: int = 0) -> Turn:
    """Returns ``turn`` in the dtypes of ``like``, observations of the same environments.

    Args:
        turn: What a step returned.
        shape: The shape of reward and flags, ``[B]`` or ``[B, N]``.
        like: Observations of the right shapes and dtypes.
        first: The number of the first environment, for the error.

    Raises:
        InvalidData: Unless it is a `Turn` whose reward and flags have ``shape``, whose observations have the shapes of
            ``like`` and dtypes that numpy casts to theirs as of the same kind, whose numbers fit into them and are
            finite, and whose flags exclude each other.
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
    next_obs = obs if same else sound_obs(turn.next_obs, like, first)
    return Turn(next_obs, reward, terminated, truncated, obs, turn.cut, turn.told)


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
            return fitted(x, dtype, name)
    raise InvalidData(f"{name} is {_kind(x)}, must be {dtype} {list(shape)}")


def _finite(x: np.ndarray, first: int, name: str) -> np.ndarray:
    """Returns ``x``. Its elements are checked only if the sum of its squares, which takes less time, is not finite."""
    if x.dtype.kind == "f" and not math.isfinite(np.vdot(x, x)):
        finite = np.isfinite(x)
        if not finite.all():
            at = tuple(np.argwhere(~finite)[0])
            fault = "" if np.isnan(x[at]) else ": infinite, or too large for float32"
            raise InvalidData(f"{name} of environment {first + at[0]} is not finite{fault}")
    return x


def _kind(x: Any) -> str:
    if isinstance(x, np.ndarray):
        return f"{x.dtype} {list(x.shape)}"
    return f"a {type(x).__name__}{f' of {len(x)}' if isinstance(x, tuple) else ''}"
