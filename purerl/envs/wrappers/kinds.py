"""The kinds of value that wrappers take. A wrong value is refused in one line with the environment and the wrapper."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from purerl.config import Range
from purerl.errors import ConfigError
from purerl.types import Env


class Kind(NamedTuple):
    """A kind of value that a wrapper takes.

    ``requirement`` completes "must be". ``read(value)`` returns the value as a wrapper takes it, or raises `ValueError`
    or `TypeError`.
    """

    requirement: str
    read: Callable[[Any], Any]

    def of(self, env: str, wrapper: str, value: Any) -> Any:
        """Returns what ``wrapper`` takes for ``value``. Raises `ConfigError`, which names both and the environment."""
        try:
            return self.read(value)
        except (ValueError, TypeError):
            raise ConfigError(f"env = {env!r}: {wrapper} = {value!r}: must be {self.requirement}") from None


def takes(kind: Kind) -> Callable[[Callable[[Env, Any], Env]], Callable[[Env, Any], Env]]:
    """Decorates a wrapper ``(env, value) -> Env``: a value of another kind then raises `ConfigError`."""

    def decorate(wrapper: Callable[[Env, Any], Env]) -> Callable[[Env, Any], Env]:
        @functools.wraps(wrapper)
        def checked(env: Env, value: Any) -> Env:
            return wrapper(env, kind.of(env.name, wrapper.__name__, value))

        return checked

    return decorate


def switch(wrapper: Callable[[Env], Env]) -> Callable[..., Env]:
    """Turns a wrapper ``env -> Env`` into ``(env, value=1) -> Env``, whose value can only be 1."""

    @functools.wraps(wrapper)
    def checked(env: Env, value: Any = 1) -> Env:
        SWITCH.of(env.name, wrapper.__name__, value)
        return wrapper(env)

    return checked


def number(limits: Range) -> Kind:
    """Returns the kind of numbers within ``limits``.

    A value that is no Python number, such as a tracer, is taken as it is.
    """

    def read(value: Any) -> Any:
        _require(not isinstance(value, bool | str | list | dict))
        _require(not isinstance(value, int | float) or value in limits)
        return value

    return Kind(f"a number in {limits}", read)


def _require(sound: bool) -> None:
    if not sound:
        raise ValueError


def _count(value: Any) -> int:
    _require(type(value) is int and value >= 1)
    return value


def _switch(value: Any) -> int:
    _require(type(value) in (int, bool) and value == 1)
    return 1


def _indices(value: Any) -> tuple[int, ...]:
    if isinstance(value, str):
        value = tuple(int(part) for part in value.split(","))
    indices = (value,) if type(value) is int else tuple(value)
    _require(bool(indices) and all(type(i) is int and i >= 0 for i in indices) and len(set(indices)) == len(indices))
    return indices


def _ranges(value: Any) -> dict[str, tuple[float, float]]:
    if isinstance(value, str):
        parts = [part.split(":") for part in value.split(",")]
        _require(len({name for name, *_ in parts}) == len(parts))
        value = {name: ends for name, *ends in parts}
    _require(isinstance(value, Mapping) and 1 <= len(value) <= MOST_PARAMETERS)
    ranges = {name: (float(low), float(high)) for name, (low, high) in value.items()}
    _require(all(name.isidentifier() and low < high for name, (low, high) in ranges.items()))
    return ranges


MOST_PARAMETERS = 8
"""The most parameters that `randomise` draws: an environment is made for every corner of their ranges."""
COUNT = Kind("a whole number >= 1", _count)
SWITCH = Kind("1 or true", _switch)
INDICES = Kind("different whole numbers >= 0, separated by commas", _indices)
RANGES = Kind(f"1 to {MOST_PARAMETERS} different NAME:LOW:HIGH with LOW < HIGH, separated by commas", _ranges)
