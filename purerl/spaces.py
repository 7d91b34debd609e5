"""Spaces of observations and actions: boxes, integers, and trees of them.

A tree of spaces (a dict, tuple, list or NamedTuple whose leaves are spaces) is a space; its elements are trees of
arrays of the same structure.
"""

import math
import numbers
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["Box", "Discrete", "MultiDiscrete", "Space", "sample"]


class Box(NamedTuple):
    """Arrays of one shape whose elements lie in ``[low, high]`` (scalars or arrays that broadcast to ``shape``).

    With ``num_frames`` above 1 they are stacks of so many frames along their last axis, the newest last.
    """

    low: Any
    high: Any
    shape: tuple[int, ...]
    dtype: Any
    num_frames: int = 1

    def __repr__(self) -> str:
        low, high = (f"{x:g}" if np.ndim(x) == 0 else "..." for x in (self.low, self.high))
        stacked = f", {self.num_frames} frames" if self.num_frames > 1 else ""
        return f"Box({np.dtype(self.dtype)}{list(self.shape)} in [{low}, {high}]{stacked})"


class Discrete(NamedTuple):
    """The integers ``0 .. n - 1``, int32; ``n`` lies in ``[1, 2^31)``."""

    n: int


class MultiDiscrete(NamedTuple):
    """Vectors of integers, int32: element ``i`` lies in ``0 .. sizes[i] - 1``; each size in ``[1, 2^31)``."""

    sizes: tuple[int, ...]


Leaf = Box | Discrete | MultiDiscrete
Space = Any
"""A `Leaf`, or a tree of leaves."""


def is_leaf(x: Any) -> bool:
    """Returns whether ``x`` is one of the three kinds of space, and not a tree of them."""
    return isinstance(x, Leaf)


def leaves(space: Space) -> list[Any]:
    """Returns the leaves of a tree of spaces, in the order of `jax.tree.leaves` of its elements."""
    return jax.tree.leaves(space, is_leaf=is_leaf)


def tree_map(function: Callable[..., Any], space: Space, *trees: Any) -> Any:
    """Maps ``function(leaf, *elements)`` over the leaves of ``space`` and what stands in their places in ``trees``."""
    return jax.tree.map(function, space, *trees, is_leaf=is_leaf)


def struct(space: Space) -> Any:
    """Returns shapes and dtypes of an element, as `jax.ShapeDtypeStruct`."""
    return tree_map(lambda leaf: jax.ShapeDtypeStruct(*_type(leaf)), space)


def frames(space: Space) -> Any:
    """Returns how many frames each leaf of an element stacks: a tree of integers; 1 for none."""
    return tree_map(lambda leaf: leaf.num_frames if isinstance(leaf, Box) else 1, space)


def bounds(leaf: Any) -> tuple[Any, Any]:
    """Returns smallest and largest values of a leaf's elements, both included; scalars, or arrays that broadcast."""
    if isinstance(leaf, Box):
        return leaf.low, leaf.high
    return 0, leaf.n - 1 if isinstance(leaf, Discrete) else np.array(leaf.sizes) - 1


def is_whole(leaf: Any) -> bool:
    """Returns whether ``leaf`` is a Box of integers or bools."""
    return isinstance(leaf, Box) and not jnp.issubdtype(leaf.dtype, jnp.inexact)


def choices(space: Space) -> list[int]:
    """Returns the number of values of each choice in an action of ``space``, in the order of its `leaves`.

    Elements of Discrete, MultiDiscrete and bounded Boxes of integers are choices, those of other Boxes are numbers.
    Bounds of integers must not be traced.
    """
    return [size for leaf in leaves(space) for size in _choices(leaf)]


def _choices(leaf: Any) -> list[int]:
    if isinstance(leaf, Discrete):
        return [leaf.n]
    if isinstance(leaf, MultiDiscrete):
        return list(leaf.sizes)
    if not is_whole(leaf):
        return []
    low, high = (np.asarray(bound, np.int64) for bound in (leaf.low, leaf.high))
    return [int(size) for size in np.broadcast_to(high - low + 1, leaf.shape).ravel()]


MOST_VALUES = 2**16
"""The most values that the elements of a Box of integers may have together, to choose from."""


def choice_problems(role: str, space: Space) -> list[str]:
    """Returns a line for each Box of integers in ``space``, free of `problems`, that has no or too many values.

    A line begins with ``role`` and the leaf's path.
    """
    named = jax.tree_util.tree_flatten_with_path(space, is_leaf=is_leaf)[0]
    lines = [(role + jax.tree_util.keystr(path), _uncountable(leaf)) for path, leaf in named if is_whole(leaf)]
    return [f"{name}: {line}" for name, line in lines if line]


def _uncountable(box: Box) -> str:
    """Returns why the elements of a Box of integers are no choices; empty if they are."""
    dtype = jnp.dtype(box.dtype)
    if array_namespace(box.low, box.high) is jnp:
        return f"integers of {dtype} need bounds that are not traced"
    if not is_bounded(box):
        return f"integers of {dtype} need finite bounds"
    count = sum(_choices(box))
    if count <= MOST_VALUES:
        return ""
    return f"{dtype}{list(box.shape)} has {count} values, each with an output of the policy; at most {MOST_VALUES}"


def from_choices(box: Box, number: jax.Array) -> jax.Array:
    """Returns the elements ``[..., *shape]`` of a Box of integers that its choices ``[..., D]``, from 0, stand for."""
    low = np.broadcast_to(np.asarray(box.low, np.int64).astype(np.int32), box.shape)  # wraps, as the sum does
    number = number.reshape((*number.shape[:-1], *box.shape))
    return (number + low.reshape((1,) * (number.ndim - low.ndim) + low.shape)).astype(box.dtype)


def to_choices(box: Box, action: jax.Array) -> jax.Array:
    """Returns the choices ``[..., D]``, int32 from 0, that elements of a Box of integers ``[..., *shape]`` are."""
    low = np.broadcast_to(np.asarray(box.low, np.int64).astype(np.int32), box.shape)
    number = action.astype(jnp.int32) - low.reshape((1,) * (action.ndim - low.ndim) + low.shape)
    return number.reshape((*number.shape[: number.ndim - low.ndim], low.size))


def is_bounded(box: Box) -> bool:
    """Returns whether every dimension of ``box`` has finite bounds. Traced ones count as finite."""
    return all(array_namespace(bound) is jnp or bool(np.all(_is_finite(bound))) for bound in (box.low, box.high))


def unit(box: Box) -> tuple[Any, Any]:
    """Returns ``(centre, scale)`` such that ``centre + scale * x`` maps [-1, 1] onto ``box``.

    Both are float32 arrays of its shape. A dimension without finite bounds keeps its own units: centre 0, scale 1.
    """
    xp = array_namespace(box.low, box.high)
    low, high = (xp.broadcast_to(xp.asarray(bound, np.float32), box.shape) for bound in (box.low, box.high))
    if xp is jnp:
        return (high + low) / 2, (high - low) / 2
    bounded = _is_finite(low) & _is_finite(high)
    low, high = np.where(bounded, low, -1), np.where(bounded, high, 1)
    return ((high + low) / 2).astype(np.float32), ((high - low) / 2).astype(np.float32)


def array_namespace(*bounds: Any) -> Any:
    """Returns the array library that can compute with ``bounds``: numpy, or jax.numpy if one is traced."""
    return jnp if any(isinstance(bound, jax.core.Tracer) for bound in bounds) else np


def _is_finite(bound: Any) -> np.ndarray:
    """Returns whether a bound is finite, elementwise; anything larger than any physical bound counts as infinite."""
    return np.abs(np.asarray(bound, np.float64)) < 1e30


def sample(space: Space, key: jax.Array, shape: tuple[int, ...] = ()) -> Any:
    """Draws ``shape`` many random elements: uniform, or standard normal and clipped where a Box is unbounded.

    Consumes ``key``.
    """
    if not is_leaf(space):
        flat, structure = jax.tree.flatten(space, is_leaf=is_leaf)
        keys = jax.random.split(key, len(flat))
        return jax.tree.unflatten(structure, [sample(leaf, k, shape) for leaf, k in zip(flat, keys, strict=True)])
    if isinstance(space, Discrete):
        return jax.random.randint(key, shape, 0, space.n)
    if isinstance(space, MultiDiscrete):
        sizes = np.broadcast_to(np.array(space.sizes, np.int32), (*shape, len(space.sizes)))
        return jax.random.randint(key, sizes.shape, 0, sizes)
    if is_whole(space) and not choice_problems("", space):
        return from_choices(space, sample(MultiDiscrete(tuple(choices(space))), key, shape))
    low, high = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
    bounded = np.all(_is_finite(low) & _is_finite(high))
    draw = jax.random.uniform if bounded else jax.random.normal
    drawn = draw(key, (*shape, *space.shape))
    low, high = np.broadcast_to(low, drawn.shape), np.broadcast_to(high, drawn.shape)
    return jnp.asarray(low + drawn * (high - low) if bounded else jnp.clip(drawn, low, high), space.dtype)


def is_picture(shape: tuple[int, ...]) -> bool:
    """Returns whether arrays of a shape are pictures or boards: ``[H, W]`` or ``[H, W, C]``, with several rows."""
    return len(shape) in (2, 3) and min(shape[:2]) > 1


def problems(role: str, space: Space) -> list[str]:
    """Returns a line for each leaf of ``space`` that cannot be a space; it begins with ``role`` and the leaf's path."""
    flat = jax.tree_util.tree_flatten_with_path(space, is_leaf=is_leaf)[0]
    if not flat:
        return [f"{role}: is {space!r}, which has no leaves"]
    named = [(role + jax.tree_util.keystr(path), leaf) for path, leaf in flat]
    return [f"{name}: {problem}" for name, leaf in named if (problem := _problem(leaf))]


def kind(space: Space) -> str:
    """Returns the name of a space's kind, for messages."""
    return type(space).__name__


def _type(leaf: Any) -> tuple[tuple[int, ...], Any]:
    if isinstance(leaf, Box):
        return tuple(leaf.shape), leaf.dtype
    return ((len(leaf.sizes),) if isinstance(leaf, MultiDiscrete) else ()), jnp.int32


def _problem(leaf: Any) -> str | None:
    if isinstance(leaf, Discrete | MultiDiscrete):
        sizes = (leaf.n,) if isinstance(leaf, Discrete) else leaf.sizes
        if not isinstance(sizes, tuple) or not sizes:
            return f"{leaf!r}: sizes must be a tuple with at least one whole number"
        whole = all(isinstance(n, numbers.Integral) and not isinstance(n, bool) and 1 <= n < 2**31 for n in sizes)
        return None if whole else f"{leaf!r}: must have whole numbers of at least 1, below {2**31}"
    if not isinstance(leaf, Box):
        where = type(leaf).__module__.partition(".")[0]
        return (
            f"is {type(leaf).__name__} of {where}; must be a purerl.spaces.Box, Discrete or MultiDiscrete, or a tree "
            "of them"
        )
    if 0 in leaf.shape:
        return f"shape {leaf.shape}: has no elements"
    if jax.dtypes.canonicalize_dtype(leaf.dtype) != jnp.dtype(leaf.dtype):
        return f"dtype {jnp.dtype(leaf.dtype)}: JAX has {jax.dtypes.canonicalize_dtype(leaf.dtype)} in its place"
    if array_namespace(leaf.low, leaf.high) is jnp:
        return None
    try:
        ordered = np.all(np.broadcast_to(leaf.low, leaf.shape) <= np.broadcast_to(leaf.high, leaf.shape))
    except (ValueError, TypeError):
        return f"low and high must broadcast to shape {leaf.shape}"
    if not ordered:
        return "low must not exceed high"
    stacked = leaf.num_frames == 1 or (len(leaf.shape) > 0 and leaf.shape[-1] == leaf.num_frames)
    return None if stacked else f"num_frames = {leaf.num_frames}: must be the last axis of shape {leaf.shape}"


def num_values(leaf: Any) -> int:
    """Returns how many elements a Discrete or a MultiDiscrete space has."""
    return leaf.n if isinstance(leaf, Discrete) else math.prod(leaf.sizes)
