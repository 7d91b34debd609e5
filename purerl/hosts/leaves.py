"""Gymnasium's spaces as the few kinds that a `HostEnv` has, observations as leaves, and actions as their library's.

A plain space is a `Dict` or `Tuple` of plain spaces, a `Box` of float32, int32, int8, uint8 or bool, a `Discrete` from
0, or a `MultiDiscrete` of one axis from 0.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from purerl.errors import ConfigError
from purerl.hosts.bundle import Batch, Leaves, Turn
from purerl.hosts.sound import InvalidData, fitted

_MOST = 2**31 - 1
"""The largest integer of 32 bits."""
_CHANNELS, _SIDE, _FRAMES = 4, 16, 16
"""The most channels of one picture, the least side of one that is not square, and the most frames of a stack."""

MASK = "action_mask"
"""The key under which ``info``, or a dictionary of observations, has the mask of the legal actions."""


class Leaf(NamedTuple):
    """One array of an observation.

    ``path`` are the keys that lead to it, ``shape`` and ``dtype`` those of the plain space, ``source`` is the library's
    shape, and ``axes`` its axes in the plain order (None: as they are). ``start`` is the smallest integer of the
    library's, which is 0 in the plain space (None: values stay as they are).
    """

    path: tuple[Any, ...]
    shape: tuple[int, ...]
    dtype: np.dtype
    start: np.ndarray | None
    source: tuple[int, ...]
    axes: tuple[int, ...] | None = None

    @property
    def name(self) -> str:
        """The name of the leaf in messages."""
        return f"observation{_keys(self.path)}"


def plain(space: Any, field: str) -> Any:
    """Returns the plain space of the observations in ``space``.

    float64 becomes float32 and int64 int32; uint8, int8 and bool stay. Integers whose bounds exceed 32 bits become
    float32. Images of uint8 have their channels last, those of a stack one after the other. A `Discrete` begins at 0,
    so does a `MultiDiscrete`, as one axis, and a `MultiBinary` is a `Box` of int8. Parts of a `Dict` or `Tuple` that
    have no fixed shape are left out.

    Raises:
        ConfigError: If the space is a `Text`, `Graph`, `Sequence`, `OneOf` or another without a fixed shape, or has no
            other parts, or if it has more values than 32 bits. The text begins with ``field``.
    """
    if isinstance(space, spaces.Dict):
        if not all(isinstance(key, str) for key in space.spaces):
            raise ConfigError(f"{field}: must have strings as keys, has {list(space.spaces)}")
        keys = [key for key in sorted(space.spaces) if _is_readable(space.spaces[key])]
        if keys or not space.spaces:
            return spaces.Dict({key: plain(space.spaces[key], f"{field}[{key!r}]") for key in keys})
    if isinstance(space, spaces.Tuple):
        parts = [plain(each, f"{field}[{i}]") for i, each in enumerate(space.spaces) if _is_readable(each)]
        if parts or not space.spaces:
            return spaces.Tuple(parts)
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(_sizes(space.n, field)[0])
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(np.array(_sizes(space.nvec, field)))
    if isinstance(space, spaces.MultiBinary):
        return spaces.Box(0, 1, space.shape, np.int8)
    if _is_readable(space):
        box = space if _dtype(space) == space.dtype else _retyped(space, _dtype(space))
        axes, shape = _layout(space)
        if axes is None:
            return box
        low, high = [x.transpose(axes).reshape(shape) for x in (box.low, box.high)]
        return spaces.Box(low, high, shape, box.dtype.type)
    raise ConfigError(
        f"{field}: is {_kind(space)}; must be Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple that has"
        " one of them; a function of your own can change it with gymnasium.wrappers.TransformObservation"
    )


def remarks(space: Any, field: str) -> list[str]:
    """Returns a line for each part of ``space`` that `plain` leaves out or reads as something else."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        return [line for key, each in parts for line in remarks(each, f"{field}[{key!r}]")]
    if not _is_readable(space):
        return [f"{field}: is {type(space).__name__}, which has no fixed shape; is left out"]
    if not isinstance(space, spaces.Box):
        return []
    lines = []
    if np.dtype(space.dtype).kind in "iu" and _dtype(space).kind == "f":
        lines.append(
            f"{field}: is of {space.dtype} within [{space.low.min()}, {space.high.max()}], which 32 bits cannot hold;"
            " is read as float32, which is exact up to 16777216; narrower bounds keep integers"
        )
    axes, shape = _layout(space)
    if axes is not None:
        lines.append(
            f"{field}: uint8 {list(space.shape)} is taken for images with channels first; becomes {list(shape)},"
            " channels last; if it is no image, give it another dtype"
            if len(axes) == 3
            else f"{field}: uint8 {list(space.shape)} is taken for a stack of images; becomes {list(shape)}, with the"
            " frames as channels; if it is no stack of images, give it another dtype"
        )
    return lines


def flat(space: Any, path: tuple[Any, ...] = ()) -> list[Leaf]:
    """Returns the leaves of the observations in ``space``, plain or not, without those that `plain` leaves out.

    A dictionary's are in the order of its sorted keys, a tuple's in its order, which is the order of
    ``jax.tree.leaves``.
    """
    if isinstance(space, spaces.Dict):
        return [leaf for key in sorted(space.spaces) for leaf in flat(space.spaces[key], (*path, key))]
    if isinstance(space, spaces.Tuple):
        return [leaf for i, each in enumerate(space.spaces) for leaf in flat(each, (*path, i))]
    if not _is_readable(space):
        return []
    source = tuple(space.shape)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        starts = np.ravel(space.start) if source else np.asarray(space.start)
        ravelled = (int(np.prod(source)),) if source else ()
        return [Leaf(path, ravelled, np.dtype(np.int32), starts.astype(np.int64) if np.any(starts) else None, source)]
    axes, shape = _layout(space)
    return [Leaf(path, shape, _dtype(space), None, source, axes)]


def outline(space: Any) -> list[tuple[Any, ...]]:
    """Returns the path, shape, dtype and numbers of values of each leaf of ``space``, which environments share."""
    parts = [_at(space, leaf.path) for leaf in flat(space)]
    return [
        (
            _keys(leaf.path),
            leaf.source,
            str(part.dtype),
            np.ravel(getattr(part, "nvec", getattr(part, "n", 0))).tolist(),
        )
        for leaf, part in zip(flat(space), parts, strict=True)
    ]


def mask_key(space: Any) -> str | None:
    """Returns the key of the mask of legal actions in the observations of ``space``; None: they have no mask."""
    return MASK if isinstance(space, spaces.Dict) and MASK in space.spaces else None


def fields(name: str, observation_space: Any, action_space: Any) -> dict[str, Any]:
    """Returns the fields of a `Source` called ``name`` that follow from its library's spaces.

    They are its name, its plain spaces, the key of its mask and the `remarks`.

    Raises:
        ConfigError: If a space has no plain one, or a mask not one element for each action. The text names the
            environment.
    """
    field, legal = f"env = {name!r}: observation_space", mask_key(observation_space)
    space, actions = plain(observation_space, field), coder(action_space, f"env = {name!r}: action_space").space
    if not has_choices(actions):
        legal = None
    if legal:
        shape, count = getattr(space.spaces.get(legal), "shape", None), sum(choices(actions))
        if shape != (count,):
            raise ConfigError(f"{field}[{legal!r}]: has shape {shape}, must be ({count},): one for each action")
    return {
        "name": name,
        "observation_space": space,
        "action_space": actions,
        "legal": legal,
        "notes": tuple(remarks(observation_space, "observation_space")),
    }


def legality(env: Any) -> Callable[[Batch], Batch]:
    """Returns a function that makes a batch of ``env`` raise `InvalidData` where no action is legal.

    ``env`` has plain spaces and the key ``legal``.
    """
    index = [leaf.path for leaf in flat(env.observation_space)].index((env.legal,))
    starts = np.cumsum([0, *choices(env.action_space)])[:-1]

    def check(obs: Leaves) -> None:
        some = np.logical_or.reduceat(obs[index], starts, axis=-1).all(axis=-1)
        if not some.all():
            raise InvalidData(
                f"no action is legal: {env.legal} is {obs[index][~some][0].tolist()}; end the episode before, or let an"
                " action be legal",
                int(np.flatnonzero(~some)[0]),
            )

    def checked(batch: Batch) -> Batch:
        plays = False

        def reset(seeds: np.ndarray) -> Leaves:
            nonlocal plays
            plays = False
            obs = batch.reset(seeds)
            check(obs)
            return obs

        def play(seeds: np.ndarray, limit: int) -> Leaves:
            nonlocal plays
            plays = True  # those that have finished keep their last observations, where no action need be legal
            return batch.play(seeds, limit) if batch.play else ()

        def step(action: np.ndarray) -> Turn:
            turn = batch.step(action)
            if not plays:
                check(turn.obs)
            return turn

        return batch._replace(reset=reset, step=step, play=play if batch.play else None)

    return checked


def parts(action_space: Any) -> list[Any]:
    """Returns the spaces without parts that a space of actions consists of, in the order of `flat`."""
    if isinstance(action_space, spaces.Dict):
        return [part for key in sorted(action_space.spaces) for part in parts(action_space.spaces[key])]
    if isinstance(action_space, spaces.Tuple):
        return [part for each in action_space.spaces for part in parts(each)]
    return [action_space]


def has_choices(action_space: Any) -> bool:
    """Returns whether a space of actions, plain or not, has other parts than a Box of floats, which a mask concerns."""
    return not all(_is_real(part) for part in parts(action_space))


def choices(action_space: Any) -> list[int]:
    """Returns how many values each choice in an action of a plain space has, in the order of `parts`."""
    return [count for part in parts(action_space) for count in _counts(part)]


def _counts(part: Any) -> list[int]:
    if isinstance(part, spaces.Box):
        return [] if _is_real(part) else (part.high.astype(np.int64) - part.low + 1).ravel().tolist()
    return [int(n) for n in np.ravel(part.nvec if isinstance(part, spaces.MultiDiscrete) else part.n)]


def _is_real(part: Any) -> bool:
    """Returns whether a space is a Box of floats."""
    return isinstance(part, spaces.Box) and np.issubdtype(part.dtype, np.floating)


def wire(action_space: Any) -> tuple[tuple[int, ...], str]:
    """Returns shape and dtype of the array in which an action of a plain space travels (`bundle.packed`)."""
    if not isinstance(action_space, spaces.Dict | spaces.Tuple):
        return tuple(action_space.shape), action_space.dtype.str
    return (sum(int(np.prod(part.shape)) for part in parts(action_space)),), np.dtype(np.float64).str


def gatherer(space: Any, each: int = 1) -> Callable[[Sequence[Any]], Leaves]:
    """Returns a function that makes the leaves ``[n, ...]`` of ``n`` observations of ``space``.

    It raises `InvalidData` for an observation that is not of its space's shape, or that its leaf cannot hold. A number
    is taken where the shape is ``(1,)``. Each environment has ``each`` of the observations.
    """
    parts = [(leaf.path, _stacker(leaf, each)) for leaf in flat(space)]
    if len(parts) == 1 and not parts[0][0]:
        only = parts[0][1]
        return lambda observations: (only(observations),)

    def gather(observations: Sequence[Any]) -> Leaves:
        return tuple(stack(_parts(observations, path, each)) for path, stack in parts)

    return gather


def splitter(space: Any) -> Callable[[Any], Leaves]:
    """Returns a function that makes the leaves ``[n, ...]`` of ``n`` observations that a library has stacked already.

    The leaves are copies. It raises `InvalidData` as that of `gatherer` does.
    """
    parts = flat(space)

    def leaves(stacked: Any) -> Leaves:
        result = []
        for leaf in parts:
            x = np.asarray(_at(stacked, leaf.path))
            if x.shape[1:] != leaf.source:
                raise InvalidData(_of_shape(leaf, x.shape[1:]))
            y = _read(leaf, x, 1)
            result.append(y.copy() if np.may_share_memory(x, y) else y)
        return tuple(result)

    return leaves


class Coder(NamedTuple):
    """A translation of actions into the library's.

    ``space`` is plain; ``decode(action)`` turns ``[n, ...]`` of its actions, as they travel (`wire`), into ``n`` of the
    library's, stacked as the library stacks them, and ``separate`` turns these into a list of ``n``.
    """

    space: Any
    decode: Callable[[np.ndarray], Any]
    separate: Callable[[Any], list[Any]]


def coder(space: Any, field: str) -> Coder:
    """Returns the `Coder` of the actions in ``space``.

    A `Discrete` is counted from 0, a `MultiDiscrete` is one axis from 0, a `MultiBinary` is a `MultiDiscrete` of twos,
    and a `Dict` or `Tuple` of these is one `MultiDiscrete`, in the order of `flat`. A `Box` is of float32, int32, or
    its own dtype of 8 bits; it decodes to its own dtype, and actions are clipped to it. A `Dict` or `Tuple` that has a
    `Box` stays one, whose leaves have the library's values: integers that do not begin at 0, or have another shape than
    one axis, are a `Box` in it.

    Raises:
        ConfigError: If the space is another, or has more values than 32 bits. The text begins with ``field``.
    """
    if isinstance(space, spaces.Box):
        return Coder(_box(space, field), lambda action: _clipped(space, np.asarray(action)), list)
    if isinstance(space, spaces.Discrete):
        first = np.int64(space.start)
        return Coder(
            spaces.Discrete(_sizes(space.n, field)[0]), lambda action: np.asarray(action, np.int64) + first, list
        )
    if any(isinstance(part, spaces.Box) for part in parts(space)):
        return _hybrid(space, field)
    columns_of = _choices(space, field)
    sizes = [size for each in columns_of for size in each.sizes]
    ends = np.cumsum([len(each.sizes) for each in columns_of])

    def decode(action: np.ndarray) -> Any:
        columns = np.split(np.asarray(action, np.int64), ends[:-1], axis=1)
        decoded = iter([part.decode(column) for part, column in zip(columns_of, columns, strict=True)])
        return _mapped(space, lambda _: next(decoded))

    return Coder(spaces.MultiDiscrete(np.array(sizes, np.int64)), decode, lambda tree: _listed(space, tree))


def _hybrid(space: Any, field: str) -> Coder:
    """Returns the `Coder` of a tree of actions that has a `Box`."""
    each = parts(space)
    ends = np.cumsum([int(np.prod(part.shape)) for part in each])[:-1]

    def decode(action: np.ndarray) -> Any:
        columns = np.split(action, ends, axis=1)
        shaped = [x.reshape(len(x), *part.shape) for part, x in zip(each, columns, strict=True)]
        decoded = iter(
            [
                _clipped(part, x) if isinstance(part, spaces.Box) else x.astype(part.dtype)
                for part, x in zip(each, shaped, strict=True)
            ]
        )
        return _mapped(space, lambda _: next(decoded))

    return Coder(_plain_tree(space, field), decode, lambda tree: _listed(space, tree))


def _plain_tree(space: Any, field: str) -> Any:
    """Returns the plain space of a tree of actions, with the values of the library's in its leaves."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: _plain_tree(space.spaces[key], f"{field}[{key!r}]") for key in sorted(space.spaces)})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([_plain_tree(part, f"{field}[{i}]") for i, part in enumerate(space.spaces)])
    if isinstance(space, spaces.MultiBinary):
        return spaces.Box(0, 1, space.shape, np.int8)
    if isinstance(space, spaces.Discrete):
        return _integers(space, np.asarray(space.n), field) if space.start else coder(space, field).space
    if isinstance(space, spaces.MultiDiscrete):
        moved = np.any(space.start) or space.nvec.ndim != 1
        return _integers(space, space.nvec, field) if moved else coder(space, field).space
    if isinstance(space, spaces.Box):
        return _box(space, field)
    raise _no_action(space, field)


def _integers(space: Any, count: np.ndarray, field: str) -> Any:
    """Returns a `Box` of ``count`` integers for each element from ``space.start`` on."""
    start = np.asarray(space.start, np.int64)
    return _box(spaces.Box(start, start + count - 1, count.shape, np.int64), field)


def _box(space: Any, field: str) -> Any:
    """Returns the plain space of actions in a `Box`."""
    kind = np.dtype(space.dtype).kind
    if kind not in "fiub":
        raise _no_action(space, field)
    dtype = _dtype(space)
    if kind != "f" and dtype.kind == "f":
        raise ConfigError(
            f"{field}: has integers of {space.dtype} within [{space.low.min()}, {space.high.max()}], which 32 bits"
            " cannot hold; give it the bounds that it needs"
        )
    return space if space.dtype == dtype else _retyped(space, dtype)


def _clipped(space: Any, action: np.ndarray) -> np.ndarray:
    """Returns actions in the dtype of a `Box`, and within it."""
    return np.minimum(np.maximum(action.astype(space.dtype), space.low), space.high)


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
        return [_Choice(_sizes(space.n, field), lambda x: x[:, 0] + np.int64(space.start))]
    if isinstance(space, spaces.MultiDiscrete):
        start = np.asarray(space.start)
        sizes = _sizes(space.nvec, field)
        return [_Choice(sizes, lambda x: (x.reshape(len(x), *space.shape) + start).astype(space.dtype))]
    if isinstance(space, spaces.MultiBinary):
        count = int(np.prod(space.shape))
        return [_Choice([2] * count, lambda x: x.reshape(len(x), *space.shape).astype(space.dtype))]
    raise _no_action(space, field)


def _no_action(space: Any, field: str) -> ConfigError:
    return ConfigError(
        f"{field}: has {type(space).__name__}; actions are Box, Discrete, MultiDiscrete, MultiBinary, or Dict or Tuple"
        " of these"
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
    return list(map(np.asarray, tree)) if isinstance(space, spaces.Box) else list(tree)


def _at(obs: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        obs = obs[key]
    return obs


def _parts(observations: Sequence[Any], path: tuple[Any, ...], each: int) -> list[Any]:
    """Returns the part at ``path`` of each observation. Raises `InvalidData` if one has none."""
    try:
        return [_at(obs, path) for obs in observations]
    except (KeyError, IndexError, TypeError):
        for i, obs in enumerate(observations):
            try:
                _at(obs, path)
            except (KeyError, IndexError, TypeError):
                given = f"a dictionary of {sorted(map(str, obs))}" if isinstance(obs, dict) else f"{_kind(obs)}"
                raise InvalidData(f"the observation is {given}, must have {_keys(path)}", i // each) from None
        raise


def _stacker(leaf: Leaf, each: int) -> Callable[[Sequence[Any]], np.ndarray]:
    source, dtype, name = leaf.source, leaf.dtype, leaf.name
    is_plain = leaf.start is None and leaf.axes is None and leaf.shape == source

    def stack(values: Sequence[Any]) -> np.ndarray:
        if not source:
            try:
                x = np.array(values)
            except ValueError:  # values of several shapes
                x = np.empty((0, 0))
            if x.shape != (len(values),):
                raise _misshapen(leaf, values, each)
            return fitted(x, dtype, name, each) if is_plain else _read(leaf, x, each)
        try:
            shapes = {x.shape for x in values}
        except AttributeError:  # x is a list of numbers
            try:
                values = [np.asarray(x) for x in values]
            except ValueError:  # of several lengths
                raise _misshapen(leaf, values, each) from None
            shapes = {x.shape for x in values}
        if shapes != {source}:
            if source != (1,) or shapes - {(), source}:
                raise _misshapen(leaf, values, each)
            values = [np.reshape(x, source) for x in values]
        x = np.concatenate(values).reshape(len(values), *source)
        return fitted(x, dtype, name, each) if is_plain else _read(leaf, x, each)

    return stack


def _read(leaf: Leaf, x: np.ndarray, each: int) -> np.ndarray:
    """Returns ``x [n, *source]`` as the leaf has it. Raises `InvalidData` if it cannot hold a value."""
    if leaf.start is not None:
        x = fitted(x, np.dtype(np.int64), leaf.name, each).reshape(len(x), *leaf.shape) - leaf.start
    if leaf.axes is not None:
        x = x.transpose(0, *(axis + 1 for axis in leaf.axes))
        x = np.ascontiguousarray(x)
    return fitted(x.reshape(len(x), *leaf.shape), leaf.dtype, leaf.name, each)


def _misshapen(leaf: Leaf, values: Sequence[Any], each: int) -> InvalidData:
    for i, value in enumerate(values):
        try:
            shape = np.shape(value)
        except ValueError:
            return InvalidData(f"the {leaf.name} is a list of lists of several lengths", i // each)
        if shape != leaf.source:
            break
    return InvalidData(_of_shape(leaf, shape), i // each)


def _of_shape(leaf: Leaf, shape: tuple[int, ...]) -> str:
    return f"the {leaf.name} has shape {shape}, its space has {leaf.source}"


def _keys(path: tuple[Any, ...]) -> str:
    return "".join(f"[{key!r}]" for key in path)


def _kind(value: Any) -> str:
    """Returns the kind of a value, with that of its parts if it is a space that has some."""
    parts = getattr(value, "spaces", None)
    if not isinstance(value, spaces.Dict | spaces.Tuple) or not parts:
        return type(value).__name__
    each = parts.values() if isinstance(parts, dict) else parts
    return f"{type(value).__name__} of {', '.join(dict.fromkeys(_kind(part) for part in each))}"


def _is_readable(space: Any) -> bool:
    """Returns whether ``space`` is a kind that has arrays of one shape, or a tree that has one of them."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return any(map(_is_readable, space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces))
    if isinstance(space, spaces.Box):
        return np.dtype(space.dtype).kind in "fiub"
    return isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary)


def _sizes(counts: Any, field: str) -> list[int]:
    """Returns the numbers of values. Raises `ConfigError` if 32 bits cannot count them."""
    sizes = [int(count) for count in np.ravel(counts)]
    if max(sizes) > _MOST:
        raise ConfigError(
            f"{field}: has {max(sizes)} values; must have at most {_MOST}, which 32 bits can count; a Box holds larger"
            " numbers, as float32"
        )
    return sizes


def _layout(space: Any) -> tuple[tuple[int, ...] | None, tuple[int, ...]]:
    """Returns the axes of a space in the plain order, None if they stay as they are, and the plain shape.

    They change where images have their channels first, or are stacked along a first axis.
    """
    shape = tuple(space.shape)
    if space.dtype != np.uint8:
        return None, shape
    if channels_first(shape):
        return (1, 2, 0), (*shape[1:], shape[0])
    if len(shape) == 4 and shape[0] <= _FRAMES:
        if shape[0] < min(shape[1:3]) and shape[3] <= _CHANNELS < min(shape[1:3]):
            return (1, 2, 0, 3), (*shape[1:3], shape[0] * shape[3])
        if shape[0] < min(shape[2:]) and shape[1] <= _CHANNELS < min(shape[2:]):
            return (2, 3, 0, 1), (*shape[2:], shape[0] * shape[1])
    return None, shape


def channels_first(shape: tuple[int, ...]) -> bool:
    """Returns whether arrays of uint8 of this shape are images ``[channels, height, width]``.

    There are fewer channels than rows and columns, which are as many, or else at least 16 each.
    """
    if len(shape) != 3 or shape[0] >= min(shape[1:]):
        return False
    return shape[1] == shape[2] or (min(shape[1:]) >= _SIDE * (1 if shape[0] <= _CHANNELS else 2))


def _dtype(space: Any) -> np.dtype:
    """Returns the dtype of a leaf, float32 where 32 bits cannot hold the integers of a `Box`."""
    dtype = np.dtype(space.dtype)
    if dtype.kind == "f":
        return np.dtype(np.float32)
    if dtype.kind == "b" or dtype.itemsize == 1:
        return dtype
    fits = not isinstance(space, spaces.Box) or (space.low.min() >= -_MOST - 1 and space.high.max() <= _MOST)
    return np.dtype(np.int32 if fits else np.float32)


def _retyped(box: Any, dtype: np.dtype) -> Any:
    """Returns ``box`` with this dtype, which holds its bounds, but for those that exceed float32."""
    low, high = box.low, box.high
    if dtype.kind == "f":
        most = np.finfo(dtype).max
        low, high = [np.where(np.isfinite(x), np.clip(x, -most, most), x) for x in (low, high)]
    return spaces.Box(low.astype(dtype), high.astype(dtype), box.shape, dtype.type)
