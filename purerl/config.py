"""Configurations: which fields are traced and which are static, their ranges, and sweeps over them."""

import dataclasses
import functools
import math
import numbers
import sys
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, TypeVar, dataclass_transform, overload

import jax
import jax.numpy as jnp
import numpy as np

from purerl.errors import ConfigError

__all__ = [
    "Count",
    "Fraction",
    "Frames",
    "Limit",
    "Needs",
    "NonNegative",
    "NonNegativeCount",
    "OpenFraction",
    "Positive",
    "Range",
    "check",
    "config",
    "problems",
    "sweep",
    "traced_fields",
    "with_lengths",
]

C = TypeVar("C")
SMALLEST, LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
"""The smallest normal and the largest float32 number; a program takes what is smaller for zero."""


@dataclasses.dataclass(frozen=True)
class Range:
    """The numbers from ``low`` to ``high``, both included unless ``open_low`` or ``open_high``."""

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = True

    def __contains__(self, value: float) -> bool:
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        return above and below

    def __str__(self) -> str:
        left, right = "(" if self.open_low else "[", ")" if self.open_high else "]"
        return f"{left}{self.low:.10g}, {self.high:.10g}{right}"


@dataclasses.dataclass(frozen=True)
class Needs:
    """A note beside a field's type: the field has no effect unless ``met(config)`` and the training has the ``part``.

    ``what`` completes "no effect without". ``part`` is the name of a dataset; empty: none is needed.
    """

    what: str
    met: Callable[[Any], bool] = lambda config: True
    part: str = ""


Positive = Annotated[float, Range(0, open_low=True)]
NonNegative = Annotated[float, Range(0)]
Fraction = Annotated[float, Range(0, 1, open_high=False)]
OpenFraction = Annotated[float, Range(0, 1, open_low=True, open_high=False)]
Count = Annotated[int, Range(1, 2**31)]
NonNegativeCount = Annotated[int, Range(0, 2**31)]


@dataclasses.dataclass(frozen=True)
class Length:
    """A note beside a field's type: the field is the length of a training, as loops and schedules read it.

    It shapes no array.
    """


Frames = Annotated[int, Range(1, 2**63), Length()]
"""Frames, counted on the host, where nothing wraps; a device counts them in 64 bits.

A program may take the number as an argument (`with_lengths`).
"""
Seed = Annotated[int, Range(0, 2**32)]
Limit = Annotated[float | int, Range(0)]
"""A number that is static, because 0 stands for a program without it."""


MEMBERS = 2**20
"""The most agents in a run, and the most trainings in a comparison.

Each takes about 1 kB on the host, for its label, seed and key, its place in the run's files and a row of numbers: 1 GiB
in all.
"""
Members = Annotated[int, Range(1, MEMBERS, open_high=False)]
CONFIGURATIONS = 2**16
"""The most configurations in a sweep. Each is checked by itself, in half a millisecond: half a minute in all."""


@overload
def config(cls: type[C], /) -> type[C]: ...
@overload
def config(**defaults: Any) -> Callable[[type[C]], type[C]]: ...
@dataclass_transform(frozen_default=True)
def config(cls: Any = None, /, **defaults: Any) -> Any:
    """Makes a frozen dataclass and a pytree: every ``float`` field is a leaf, every other field is static.

    A float may therefore be swept, evolved and traced; a static field shapes the program and must be hashable. A
    `Frames` field is static as long as it is a Python int, and a leaf otherwise (`with_lengths`).
    ``@config(name=value)`` gives inherited fields other defaults. A list given for a tuple becomes a tuple, and a float
    given for an int, such as 1e5, an int.

    Raises:
        TypeError: If ``defaults`` names a field that is not inherited, or an attribute has no type.
    """
    if cls is None:
        return functools.partial(_config, defaults)
    return _config(defaults, cls)


def _config(defaults: dict[str, Any], cls: type[C]) -> type[C]:
    inherited = typing.get_type_hints(cls, include_extras=True)
    _check_typed(cls)
    for name, default in defaults.items():
        if name not in inherited or name in cls.__annotations__:
            raise TypeError(f"{cls.__qualname__}: no field {name!r} is inherited")
        setattr(cls, name, default)
    cls.__annotations__ = {**{name: inherited[name] for name in defaults}, **cls.__annotations__}
    made: Any = cls
    if not hasattr(made, "__post_init__"):
        made.__post_init__ = _convert
    made = dataclasses.dataclass(frozen=True)(made)
    names, always, lengths = [field.name for field in dataclasses.fields(made)], traced_fields(made), _lengths(made)

    def flatten(config: Any) -> tuple[list[tuple[Any, Any]], tuple[tuple[str, ...], tuple[Any, ...]]]:
        values = vars(config)
        leaves = (*always, *(name for name in lengths if not isinstance(values[name], int)))
        rest = tuple(values[name] for name in names if name not in leaves)
        return [(jax.tree_util.GetAttrKey(name), values[name]) for name in leaves], (leaves, rest)

    def unflatten(static: tuple[tuple[str, ...], tuple[Any, ...]], children: Iterable[Any]) -> Any:
        leaves, rest = static
        others = (name for name in names if name not in leaves)
        return made(**dict(zip(leaves, children, strict=True)), **dict(zip(others, rest, strict=True)))

    jax.tree_util.register_pytree_with_keys(made, flatten, unflatten)
    return made


def _check_typed(cls: type) -> None:
    """Raises `TypeError` for an attribute of a config's class that was meant as a setting, but has no type."""
    methods = types.FunctionType, property, classmethod, staticmethod, functools.cached_property, type
    for name, value in vars(cls).items():
        if name.startswith("_") or name in cls.__annotations__ or isinstance(value, methods):
            continue
        kind = f"{name}: {type(value).__name__} = {value!r}"
        raise TypeError(f"{cls.__qualname__}: {name} = {value!r} has no type, so it is no setting; write {kind}")


def typed(kind: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Returns values of the fields of a dataclass, with tuples for lists and ints for floats without a fraction.

    Each is converted only where the field is of that type.
    """
    tuples, ints = _tuples_and_ints(kind)

    def converted(name: str, value: Any) -> Any:
        if type(value) is list and name in tuples:
            return tuple(value)
        return int(value) if type(value) is float and name in ints and value.is_integer() else value

    return {name: converted(name, value) for name, value in values.items()}


def _convert(config: Any) -> None:
    """Converts the values of a new config (`typed`)."""
    vars(config).update(typed(type(config), vars(config)))


@functools.cache
def _tuples_and_ints(kind: Any) -> tuple[frozenset[str], frozenset[str]]:
    """Returns the names of the fields of a class that are tuples, and of those that are ints."""
    kinds = {name: _limits(hint)[0] for name, hint in _hints(kind).items()}
    tuples = frozenset(name for name, kind in kinds.items() if typing.get_origin(kind) is tuple)
    return tuples, frozenset(name for name, kind in kinds.items() if kind is int)


@functools.cache
def _lengths(kind: Any) -> tuple[str, ...]:
    """Returns the names of the fields of a class that are a `Length`."""
    notes = {name: getattr(hint, "__metadata__", ()) for name, hint in _hints(kind).items()}
    return tuple(field.name for field in dataclasses.fields(kind) if Length() in notes[field.name])


def with_lengths(config: C) -> C:
    """Returns ``config`` with its lengths (`Frames`, such as ``total_steps``) as leaves.

    They become numbers of float32, which are exact up to 2^24 and rounded to a part in 2^24 beyond. What is jitted with
    such a config as an argument is the same program for every length, where the length does not shape it:
    ``make_trainer`` takes it, ``make_train``, whose metrics have a row for each iteration, does not. ::

        step = jax.jit(lambda config, state: ppo.make_trainer(config, env).step(state))
        state, metrics = step(cfg.with_lengths(config), state)
    """
    given: Any = config
    lengths = {name: np.float32(getattr(config, name)) for name in _lengths(given.__class__)}
    return dataclasses.replace(given, **lengths)


def traced_fields(config_or_class: Any) -> list[str]:
    """Returns the names of the fields that are pytree leaves, in order of definition."""
    hints = typing.get_type_hints(type(config_or_class) if not isinstance(config_or_class, type) else config_or_class)
    return [field.name for field in dataclasses.fields(config_or_class) if hints[field.name] is float]


def problems(config: Any) -> list[str]:
    """Returns a line for each field whose value has the wrong type or lies outside its range; skips tracers."""
    problems: list[str] = []
    kind_of_config: Any = type(config)
    hints, lengths = _hints(kind_of_config), _lengths(kind_of_config)
    for name in [field.name for field in dataclasses.fields(config)]:
        value = getattr(config, name)
        if isinstance(value, jax.core.Tracer):
            continue
        kind, limits = _limits(hints[name])
        if isinstance(kind, types.UnionType):  # None and text are allowed if they are members
            if value is None and types.NoneType in typing.get_args(kind):
                continue
            kind = str if isinstance(value, str) and str in typing.get_args(kind) else typing.get_args(kind)[0]
        # A numpy number, because comparisons of jax arrays would be traced in a jit.
        number: Any = np.asarray(value)[()] if isinstance(value, jax.Array) else value
        if name in lengths and isinstance(number, np.floating):
            kind = float
        problem = _type_problem(number, kind) or next(
            (f"must lie in {limit}" for limit in limits if number not in limit), None
        )
        if kind is float:
            problem = problem or _rounding_problem(number, limits)
        if problem:
            problems.append(f"{name} = {value!r}: {problem}")
    return problems


def known(*values: Any) -> bool:
    """Tells whether values of settings can be compared in Python: none is an array, which may be traced."""
    return not any(isinstance(value, jax.Array) for value in values)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    """Returns the annotations of a class, with the notes beside their types."""
    return typing.get_type_hints(kind, include_extras=True)


def _rounding_problem(value: float, limits: list[Range]) -> str | None:
    """Returns what is wrong with a number in float32, as programs take it; very small numbers are zero there."""
    with np.errstate(all="ignore"):
        single = float(np.float32(value))
    if not math.isfinite(single) or (value and abs(single) < SMALLEST):
        rounded = single if math.isinf(single) else 0.0
        return f"is {rounded} in float32, whose sizes reach from {SMALLEST:.3g} to {LARGEST:.3g}"
    for limit in limits:
        if (limit.open_low and single <= limit.low) or (limit.open_high and single >= limit.high):
            return f"is {single} in float32, must lie in {limit}"
    return None


def _limits(hint: Any) -> tuple[Any, list[Range]]:
    """Returns the type in an annotation, and the ranges beside it."""
    if typing.get_origin(hint) is not Annotated:
        return hint, []
    kind, *notes = typing.get_args(hint)
    return kind, [note for note in notes if isinstance(note, Range)]


def _type_problem(value: Any, kind: Any) -> str | None:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return None if value in args else f"must be one of {', '.join(map(repr, args))}"
    if origin is tuple:
        inner, limits = _limits(args[0])
        if not isinstance(value, tuple):
            return f"must be a tuple of {inner.__name__}"
        bad = [v for v in value if _type_problem(v, inner) or any(v not in limit for limit in limits)]
        return f"every element must be {inner.__name__} in {limits[0] if limits else 'range'}" if bad else None
    if kind is float:
        scalar = hasattr(value, "dtype") and jnp.ndim(value) == 0
        if isinstance(value, bool) or not (scalar or isinstance(value, numbers.Real)):
            return "must be a number"
        too_large = isinstance(value, int) and abs(value) > sys.float_info.max
        return "must be finite" if too_large or not math.isfinite(value) else None
    if kind is int:
        return None if isinstance(value, int) and not isinstance(value, bool) else "must be a whole number"
    return None if isinstance(value, kind) else f"must be {kind.__name__}"


def unused(configs: Sequence[Any], usual: Any, parts: Sequence[str] = ()) -> list[str]:
    """Returns a line for each field that was changed without effect.

    Such a field differs in one of ``configs`` from its value in ``usual``, and has an effect in none of them (`Needs`).
    ``parts`` are the names of the datasets of the training.
    """
    notes: dict[str, Needs] = {}
    for base in reversed(type(usual).__mro__[:-1]):
        for name, hint in _hints(base).items():
            for note in getattr(hint, "__metadata__", ()):
                if isinstance(note, Needs):
                    notes[name] = note
    problems = []
    for name, needs in notes.items():
        changed = [value for config in configs if (value := getattr(config, name)) != getattr(usual, name)]
        if changed and not (needs.part in ("", *parts) and any(map(needs.met, configs))):
            problems.append(f"{name} = {changed[0]!r}: has no effect without {needs.what}")
    return problems


def check(config: Any, *more: str) -> None:
    """Checks every number of a config against the range in its annotation.

    Args:
        config: The config.
        more: Problems that were found elsewhere.

    Raises:
        ConfigError: If there are problems. It lists all of them, one a line.
    """
    lines = problems(config) + list(more)
    if lines:
        raise ConfigError("\n".join(lines))


def sweep_problems(config: Any, values: dict[str, Any], problems: Callable[[Any], list[str]] = problems) -> list[str]:
    """Returns the problems of the configurations of a sweep that ``config`` itself does not have, each line once.

    Args:
        config: The config that is swept.
        values: Lists of one length by the names of fields, which move together, element by element.
        problems: Lists the problems of a config, one a line.
    """
    unknown = [f"{name}: cannot be swept" for name in values if name not in traced_fields(config)]
    before = problems(config)
    columns = {name: column for name, column in values.items() if name in traced_fields(config)}
    lines = [line for changed in rows(config, columns) for line in problems(changed)]
    return unknown + [line for line in dict.fromkeys(lines) if line not in before]


def rows(config: C, columns: dict[str, Sequence[float]]) -> list[C]:
    """Returns the configurations of a sweep: ``config`` with each row of ``columns``, lists of one length by field."""
    given: Any = config
    changes = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return [dataclasses.replace(given, **change) for change in changes]


def sweep(config: C, **values: Any) -> tuple[C, C]:
    """Replaces traced fields by arrays ``[P]`` and gives the matching ``in_axes`` for `jax.vmap`.

    ``batch, axes = sweep(config, learning_rate=jnp.logspace(-4, -2, 16))``. Several fields move together, element by
    element, so their lengths must agree; a grid is a ``meshgrid`` flattened beforehand.

    Raises:
        ConfigError: If a name is no traced field, or lengths differ.
    """
    traced = traced_fields(config)
    unknown = [name for name in values if name not in traced]
    if unknown:
        raise ConfigError(f"cannot sweep {', '.join(unknown)}; these can be swept: {', '.join(traced)}")
    arrays = {name: jnp.asarray(value, dtype=jnp.float32) for name, value in values.items()}
    shapes = {array.shape for array in arrays.values()}
    if len(shapes) > 1 or any(len(shape) != 1 for shape in shapes):
        raise ConfigError(f"swept values must be vectors of one length, got shapes {sorted(shapes)}")
    given: Any = config  # a dataclass, made by `config`
    leaves = (*traced, *(name for name in _lengths(given.__class__) if not isinstance(getattr(config, name), int)))
    axes = dataclasses.replace(given, **{name: 0 if name in arrays else None for name in leaves})
    return dataclasses.replace(given, **arrays), axes
