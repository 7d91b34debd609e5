"""Gymnasium's spaces as the few kinds that a `HostEnv` has, observations as leaves, and actions as their library's.

A plain space is a `Dict` or `Tuple` of plain spaces, a `Box` of float32, int32, int8, uint8 or bool, a `Discrete` from
0, or a `MultiDiscrete` of one axis from 0.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from purerl.errors import ConfigError
from purerl.hosts.bundle import Leaves

_DTYPES = {"f2": "f4", "f8": "f4", "i2": "i4", "i8": "i4", "u2": "i4", "u4": "i4", "u8": "i4"}
"""Dtypes of numpy that a leaf cannot have, each with the one that it has instead."""

MASK = "action_mask"
"""The key under which ``info``, or a dictionary of observations, has the mask of the legal actions."""


class Leaf(NamedTuple):
    """One array of an observation.

    ``path`` are the keys that lead to it, ``shape`` and ``dtype`` those of the plain space, and ``start`` is the
    smallest integer of the library's, which is 0 in the plain space (None: values stay as they are).
    """

    path: tuple[Any, ...]
    shape: tuple[int, ...]
    dtype: np.dtype
    start: np.ndarray | None


def plain(space: Any, field: str) -> Any:
    """Returns the plain space of the observations in ``space``.

    float64 becomes float32 and int64 int32; uint8, int8 and bool stay. A `Discrete` begins at 0, so does a
    `MultiDiscrete`, as one axis, and a `MultiBinary` is a `Box` of int8.

    Raises:
        ConfigError: If the space is a `Text`, `Graph`, `Sequence`, `OneOf` or another without a fixed shape. The text
            begins with ``field``.
    """
    if isinstance(space, spaces.Dict):
        if not all(isinstance(key, str) for key in space.spaces):
            raise ConfigError(f"{field}: must have strings as keys, has {list(space.spaces)}")
        return spaces.Dict({key: plain(space.spaces[key], f"{field}[{key!r}]") for key in sorted(space.spaces)})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([plain(each, f"{field}[{i}]") for i, each in enumerate(space.spaces)])
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(np.ravel(space.nvec))
    if isinstance(space, spaces.MultiBinary):
        return spaces.Box(0, 1, space.shape, np.int8)
    if isinstance(space, spaces.Box):
        dtype = _dtype(space.dtype)
        return space if dtype == space.dtype else _retyped(space, dtype)
    raise ConfigError(
        f"{field}: is {type(space).__name__}; must be Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of"
        " them; a function of your own can remove it with gymnasium.wrappers.FilterObservation"
    )


def flat(space: Any, path: tuple[Any, ...] = ()) -> list[Leaf]:
    """Returns the leaves of the observations in ``space``, plain or not.

    A dictionary's are in the order of its sorted keys, a tuple's in its order, which is the order of
    ``jax.tree.leaves``.
    """
    if isinstance(space, spaces.Dict):
        return [leaf for key in sorted(space.spaces) for leaf in flat(space.spaces[key], (*path, key))]
    if isinstance(space, spaces.Tuple):
        return [leaf for i, each in enumerate(space.spaces) for leaf in flat(each, (*path, i))]
    start = None
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        starts = np.asarray(space.start)
        start = starts if np.any(starts) else None
    shape = space.shape
    if isinstance(space, spaces.MultiDiscrete):
        shape, start = (int(np.prod(shape)),), None if start is None else np.ravel(start)
    return [Leaf(path, tuple(shape), _dtype(space.dtype), start)]


def mask_key(space: Any) -> str | None:
    """Returns the key of the mask of legal actions in the observations of ``space``; None: they have no mask."""
    return MASK if isinstance(space, spaces.Dict) and MASK in space.spaces else None


def fields(name: str, observation_space: Any, action_space: Any) -> dict[str, Any]:
    """Returns the fields of a `Source` called ``name`` that follow from its library's spaces.

    They are its name, its plain spaces and the key of its mask.

    Raises:
        ConfigError: If a space has no plain one. The text names the environment.
    """
    return {
        "name": name,
        "observation_space": plain(observation_space, f"env = {name!r}: observation_space"),
        "action_space": coder(action_space, f"env = {name!r}: action_space").space,
        "legal": mask_key(observation_space),
    }


def gatherer(space: Any) -> Callable[[Sequence[Any]], Leaves]:
    """Returns a function that makes the leaves ``[n, ...]`` of ``n`` observations of ``space``.

    It raises `ValueError` for an observation whose shape is not its space's, and `TypeError` for one whose dtype cannot
    be cast to it.
    """
    parts = [(leaf.path, _stacker(leaf, source)) for leaf, source in zip(flat(space), _sources(space), strict=True)]
    if len(parts) == 1 and not parts[0][0]:
        only = parts[0][1]
        return lambda observations: (only(observations),)
    return lambda observations: tuple(stack([_at(obs, path) for obs in observations]) for path, stack in parts)


def splitter(space: Any) -> Callable[[Any], Leaves]:
    """Returns a function that makes the leaves ``[n, ...]`` of ``n`` observations that a library has stacked already.

    The leaves are copies.
    """
    parts = list(zip(flat(space), _sources(space), strict=True))

    def leaves(stacked: Any) -> Leaves:
        result = []
        for leaf, source in parts:
            x = np.asarray(_at(stacked, leaf.path))
            if x.shape[1:] != source:
                raise ValueError(f"an observation has shape {x.shape[1:]}, its space has {source}")
            result.append(_shifted(leaf, x.reshape(len(x), *leaf.shape).astype(leaf.dtype, casting="same_kind")))
        return tuple(result)

    return leaves


class Coder(NamedTuple):
    """A translation of actions into the library's.

    ``space`` is plain, one leaf; ``decode(action)`` turns ``[n, ...]`` of its actions into ``n`` of the library's,
    stacked as the library stacks them, and ``separate`` turns these into a list of ``n``.
    """

    space: Any
    decode: Callable[[np.ndarray], Any]
    separate: Callable[[Any], list[Any]]


def coder(space: Any, field: str) -> Coder:
    """Returns the `Coder` of the actions in ``space``.

    A `Discrete` is counted from 0, a `MultiDiscrete` is one axis from 0, a `MultiBinary` is a `MultiDiscrete` of twos,
    and a `Dict` or `Tuple` of these is one `MultiDiscrete`, in the order of `flat`. A `Box` is of float32 and decodes
    to its own dtype, and actions are clipped to it.

    Raises:
        ConfigError: If the space is another. The text begins with ``field``.
    """
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        box = space if space.dtype == np.float32 else _retyped(space, np.dtype(np.float32))
        return Coder(box, lambda action: np.clip(np.asarray(action).astype(space.dtype), space.low, space.high), list)
    if isinstance(space, spaces.Discrete):
        first = np.int64(space.start)
        return Coder(spaces.Discrete(int(space.n)), lambda action: np.asarray(action, np.int64) + first, list)
    parts = _choices(space, field)
    sizes = [size for each in parts for size in each.sizes]
    ends = np.cumsum([len(each.sizes) for each in parts])

    def decode(action: np.ndarray) -> Any:
        columns = np.split(np.asarray(action, np.int64), ends[:-1], axis=1)
        decoded = iter([part.decode(column) for part, column in zip(parts, columns, strict=True)])
        return _mapped(space, lambda _: next(decoded))

    return Coder(spaces.MultiDiscrete(np.array(sizes, np.int64)), decode, lambda tree: _listed(space, tree))


class _Choice(NamedTuple):
    """A part of an action: how many values each of its elements has, and what makes the library's of ``[n, k]``."""

    sizes: list[int]
    decode: Callable[[np.ndarray], np.ndarray]


def _choices(space: Any, field: str) -> list[_Choice]:
    if isinstance(space, spaces.Dict):
        return [part for key in sorted(space.spaces) for part in _choices(space.spaces[key], field)]
    if isinstance(space, spaces.Tuple):
        return [part for each in space.spaces for part in _choices(each, field)]
    if isinstance(space, spaces.Discrete):
        return [_Choice([int(space.n)], lambda x: x[:, 0] + np.int64(space.start))]
    if isinstance(space, spaces.MultiDiscrete):
        start = np.asarray(space.start)
        sizes = [int(size) for size in np.ravel(space.nvec)]
        return [_Choice(sizes, lambda x: (x.reshape(len(x), *space.shape) + start).astype(space.dtype))]
    if isinstance(space, spaces.MultiBinary):
        count = int(np.prod(space.shape))
        return [_Choice([2] * count, lambda x: x.reshape(len(x), *space.shape).astype(space.dtype))]
    raise ConfigError(
        f"{field}: has {type(space).__name__}; actions are a Box of floats, or Discrete, MultiDiscrete, MultiBinary and"
        " Dict or Tuple of these three"
    )


def _mapped(space: Any, function: Callable[[Any], Any]) -> Any:
    """Maps ``function(leaf)`` over all leaves, in the order of `flat`."""
    if isinstance(space, spaces.Dict):
        return {key: _mapped(space.spaces[key], function) for key in sorted(space.spaces)}
    if isinstance(space, spaces.Tuple):
        return tuple(_mapped(each, function) for each in space.spaces)
    return function(space)


def _listed(space: Any, tree: Any) -> list[Any]:
    """Returns the elements of a tree of arrays ``[n, ...]`` as a list."""
    if isinstance(space, spaces.Dict):
        columns = {key: _listed(space.spaces[key], tree[key]) for key in space.spaces}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if isinstance(space, spaces.Tuple):
        return list(zip(*[_listed(each, x) for each, x in zip(space.spaces, tree, strict=True)], strict=True))
    return list(tree)


def _at(obs: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        obs = obs[key]
    return obs


def _sources(space: Any) -> list[tuple[int, ...]]:
    """Returns the shapes of the leaves as the library gives them."""
    shapes: list[tuple[int, ...]] = []
    _mapped(space, lambda leaf: shapes.append(tuple(leaf.shape)))
    return shapes


def _stacker(leaf: Leaf, source: tuple[int, ...]) -> Callable[[Sequence[Any]], np.ndarray]:
    shape, dtype = leaf.shape, leaf.dtype

    def stack(values: Sequence[Any]) -> np.ndarray:
        if not source:
            x = np.array(values)
            if x.shape != (len(values),):
                raise ValueError(f"an observation has shape {x.shape[1:]}, its space has ()")
            return _shifted(leaf, x.astype(dtype, casting="same_kind"))
        try:
            shapes = {x.shape for x in values}
        except AttributeError:  # x is a list of numbers
            values = [np.asarray(x) for x in values]
            shapes = {x.shape for x in values}
        if shapes != {source}:
            wrong = next(shape for shape in shapes if shape != source)
            raise ValueError(f"an observation has shape {wrong}, its space has {source}")
        joined = np.concatenate(values, dtype=dtype, casting="same_kind")
        return _shifted(leaf, joined.reshape(len(values), *shape))

    return stack


def _shifted(leaf: Leaf, x: np.ndarray) -> np.ndarray:
    return x if leaf.start is None else (x - leaf.start).astype(leaf.dtype)


def _dtype(dtype: Any) -> np.dtype:
    dtype_of_leaf = np.dtype(dtype)
    return np.dtype(_DTYPES.get(dtype_of_leaf.str[1:], dtype_of_leaf))


def _retyped(box: Any, dtype: np.dtype) -> Any:
    """Returns ``box`` with this dtype, its bounds clipped to what that can hold."""
    if dtype.kind == "f":
        most = np.finfo(dtype).max
        low, high = [np.where(np.isfinite(x), np.clip(x, -most, most), x).astype(dtype) for x in (box.low, box.high)]
    else:
        limits = np.iinfo(dtype)
        low, high = [np.clip(x, limits.min, limits.max).astype(dtype) for x in (box.low, box.high)]
    return spaces.Box(low, high, box.shape, dtype.type)
