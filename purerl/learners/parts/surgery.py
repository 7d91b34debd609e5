"""Surgery: a learner with wider dense layers that acts and values as before, its optimiser's moments included.

Berner et al. 2019 (arXiv 1912.06680, appendix B). Where a layer ``y = W x + b`` is followed by ``z = V y + c`` and
``y`` grows, the new rows of ``W`` and ``b`` are what they are when a network is made, and the new columns of ``V`` are
zero. So no old unit sees a new one, and all old outputs are what they were, up to rounding; the new units learn from
the first step on, since the gradient of the new columns of ``V`` is not zero.

A state is widened into the shapes of a fresh one, ``State.params`` of which was initialised at the new widths. Kernels
are ``[in, out]``, as Flax has them, and old units come before new ones.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from purerl import trees
from purerl.learners.parts import versions
from purerl.types import Array, PyTree

DENSE = {"kernel": 2, "bias": 1}
"""The parameters of a dense layer, and their axes: the only ones that grow."""


def problems(state: Any, fresh: Any) -> list[str]:
    """Why ``state`` cannot be widened into the shapes of ``fresh``, a line each. Both are states of a learner, or their
    `jax.ShapeDtypeStruct`s.

    A state has ``params``, ``opt_state``, and whatever else does not grow, is as ``params`` is, or is a
    `versions.Past`.
    """
    if not {"params", "opt_state"} <= set(getattr(state, "_fields", ())):
        return ["the learner keeps its parameters or its optimisers in a way that surgery does not know"]
    if not _is_like(state, fresh):
        return ["the network would have other layers"]
    found = _params_problems(state.params, fresh.params)
    grown = {(old.shape, new.shape) for old, new in _pairs(state.params, fresh.params)}
    grown |= {((_size(state.params),), (_size(fresh.params),))}
    if any((old.shape, new.shape) not in grown for old, new in _pairs(state.opt_state, fresh.opt_state)):
        found.append("the optimiser's state has a size of its own for each parameter")
    for name in state._fields:
        old, new = getattr(state, name), getattr(fresh, name)
        if name != "opt_state" and not _is_like(old, state.params) and not isinstance(old, versions.Past):
            found += [f"{name} would have the shape {b.shape} instead of {a.shape}" for a, b in _pairs(old, new)][:1]
    return found


def widen(state: Any, fresh: Any) -> Any:
    """``state`` in the shapes of ``fresh``, where `problems` finds nothing: parameters, those of targets and past
    versions among them, with units that change no output, moments of 0 for what is new, and all else as it was."""

    def field(old: PyTree, new: PyTree) -> PyTree:
        if _is_like(old, state.params):
            return widen_params(old, fresh.params)
        if isinstance(old, versions.Past):
            split = ravel_pytree(state.params)[1]
            grown = jax.vmap(lambda flat: ravel_pytree(widen_params(split(flat), fresh.params))[0])(old.versions)
            return old._replace(versions=grown)
        return old

    kept = {name: field(getattr(state, name), getattr(fresh, name)) for name in state._fields if name != "opt_state"}
    return state._replace(**kept, opt_state=widen_moments(state.opt_state, state.params, fresh.opt_state, fresh.params))


def widen_params(params: PyTree, fresh: PyTree) -> PyTree:
    """``params`` in the shapes of ``fresh``, which computes the same. What is new is ``fresh``'s, but for the weights
    from new units, or new inputs, to old units, which are 0."""

    def grown(old: Array, new: Array) -> Array:
        if old.ndim == 2:
            new = new.at[old.shape[0] :, : old.shape[1]].set(0.0)
        return _corner(old, new)

    return jax.tree.map(grown, params, fresh)


def widen_moments(opt_state: PyTree, params: PyTree, fresh: PyTree, fresh_params: PyTree) -> PyTree:
    """An optimiser's state in the shapes of ``fresh``: 0 for every new parameter, counts as they were.

    Moments are trees as ``params`` is or, as `gradients.join` has them on CPU, vectors of all parameters.
    """
    split, size = ravel_pytree(params)[1], _size(params)

    def grown(old: Array, new: Array) -> Array:
        if old.shape == (size,) and new.shape == (_size(fresh_params),):
            return ravel_pytree(jax.tree.map(_padded, split(old), fresh_params))[0]
        return _padded(old, new)

    return jax.tree.map(grown, opt_state, fresh)


def _params_problems(params: PyTree, fresh: PyTree) -> list[str]:
    """A line for each parameter that cannot grow as it would have to."""
    found, wider = [], trees.named_leaves(fresh)
    for name, old in trees.named_leaves(params).items():
        before, after, parts = old.shape, wider[name].shape, name.split(".")
        if before == after:
            continue
        if any(part.startswith("LayerNorm") for part in parts):
            found.append(f"{name}: a wider layer would be normalised by another mean and deviation")
        elif DENSE.get(parts[-1]) != len(before):
            found.append(f"{name}: only dense layers can be widened, and this is {list(before)}")
        elif any(b < a for a, b in zip(before, after, strict=True)):
            found.append(f"{name}: cannot shrink from {list(before)} to {list(after)}")
    return found


def _pairs(old: PyTree, new: PyTree) -> list[tuple[Any, Any]]:
    """The leaves of two trees whose shapes differ."""
    both = zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True)
    return [(a, b) for a, b in both if a.shape != b.shape]


def _is_like(tree: PyTree, other: PyTree) -> bool:
    """Whether two trees have the same structure."""
    structures: list[Any] = [jax.tree.structure(each) for each in (tree, other)]
    return structures[0] == structures[1]


def _size(params: PyTree) -> int:
    """The number of parameters."""
    return sum(int(np.prod(x.shape)) for x in jax.tree.leaves(params))


def _corner(old: Array, new: Array) -> Array:
    """``new`` with ``old`` in its first corner."""
    return new.at[tuple(slice(size) for size in old.shape)].set(old)


def _padded(old: Array, new: Array) -> Array:
    """``old`` in the shape of ``new``, with zeros."""
    return _corner(old, jnp.zeros_like(new))
