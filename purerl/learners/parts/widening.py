"""Surgery: making dense layers wider without changing what a learner does, its optimiser's moments included.

Berner et al. 2019 (arXiv 1912.06680, appendix B). Where a layer ``y = W x + b`` is followed by ``z = V y + c`` and
``y`` grows, the new rows of ``W`` and ``b`` are initialised as in a new network, and the new columns of ``V`` are zero.
So no old unit sees a new one, and all old outputs stay as they were, up to rounding. The new units learn from the first
step on, since the gradient of the new columns of ``V`` is not zero.

A state is widened into the shapes of a fresh one, ``State.params`` of which was initialised at the new widths. Kernels
are ``[in, out]``, as Flax has them, and old units come before new ones.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from purerl import trees
from purerl.learners.parts.reuse import Reusing
from purerl.learners.parts.stale_actors import History, StaleActors
from purerl.learners.parts.time_aware import Aging
from purerl.types import Array, PyTree

DENSE = {"kernel": 2, "bias": 1}
"""The parameters of a dense layer, and their axes: the only ones that grow."""

LAYERS = StaleActors, Reusing, Aging
"""States that hold another in their field ``learner``."""
GROWN_APART = "opt_state", "learner"


def problems(state: Any, fresh: Any) -> list[str]:
    """Returns the reasons why ``state`` cannot be widened into the shapes of ``fresh``, a line each.

    A state has ``params`` and ``opt_state``. Each of its other fields keeps its size, has the structure of ``params``,
    or is a `stale_actors.History`.

    Args:
        state: State of a learner, or its `jax.ShapeDtypeStruct`s.
        fresh: State of a wider learner, or its `jax.ShapeDtypeStruct`s.
    """
    if isinstance(state, LAYERS):
        return problems(state.learner, fresh.learner) or _size_problems(state, fresh)
    if not {"params", "opt_state"} <= set(getattr(state, "_fields", ())):
        return ["the learner keeps its parameters or its optimisers in a way that surgery does not know"]
    if not _is_like(state, fresh):
        return ["the network would have other layers"]
    lines = _params_problems(state.params, fresh.params)
    grown = {(old.shape, new.shape) for old, new in _pairs(state.params, fresh.params)}
    grown |= {((_size(state.params),), (_size(fresh.params),))}
    if any((old.shape, new.shape) not in grown for old, new in _pairs(state.opt_state, fresh.opt_state)):
        lines.append("the optimiser's state has a size of its own for each parameter")
    return lines + _size_problems(state, fresh)


def _size_problems(state: Any, fresh: Any) -> list[str]:
    """Returns a line for each field of a state that would have another size, and is no parameters."""
    lines, params = [], core(state).params
    for name in state._fields:
        old = getattr(state, name)
        new = getattr(fresh, name)
        if name not in GROWN_APART and not _is_like(old, params) and not isinstance(old, History):
            lines += [f"{name} would have the shape {b.shape} instead of {a.shape}" for a, b in _pairs(old, new)][:1]
    return lines


def core(state: Any) -> Any:
    """Returns the state inside of all `LAYERS`, which has the parameters."""
    return core(state.learner) if isinstance(state, LAYERS) else state


def widen(state: Any, fresh: Any) -> Any:
    """Returns ``state`` in the shapes of ``fresh``, if `problems` returns none.

    Parameters, including those of targets and past versions, have new units that change no output. Moments of new
    parameters are 0. All else stays as it was.
    """
    params, wider = core(state).params, core(fresh).params

    def field(name: str, old: PyTree, new: PyTree) -> PyTree:
        if name == "learner" and isinstance(state, LAYERS):
            return widen(old, new)
        if name == "opt_state":
            return widen_moments(old, params, new, wider)
        if _is_like(old, params):
            return widen_params(old, wider)
        if isinstance(old, History):
            split = ravel_pytree(params)[1]
            grown = jax.vmap(lambda flat: ravel_pytree(widen_params(split(flat), wider))[0])(old.versions)
            return old._replace(versions=grown)
        return old

    return state._replace(**{name: field(name, getattr(state, name), getattr(fresh, name)) for name in state._fields})


def widen_params(params: PyTree, fresh: PyTree) -> PyTree:
    """Returns ``params`` in the shapes of ``fresh``, which compute the same outputs.

    What is new is ``fresh``'s, except for the weights from new units, or new inputs, to old units, which are 0.
    """

    def grown(old: Array, new: Array) -> Array:
        if old.ndim == 2:
            new = new.at[old.shape[0] :, : old.shape[1]].set(0.0)
        return _corner(old, new)

    return jax.tree.map(grown, params, fresh)


def widen_moments(opt_state: PyTree, params: PyTree, fresh: PyTree, fresh_params: PyTree) -> PyTree:
    """Returns an optimiser's state in the shapes of ``fresh``: 0 for every new parameter, counts as they were.

    Moments are trees like ``params`` or, as `gradients.join` makes them on CPU, vectors of all parameters.

    Args:
        opt_state: The state to widen.
        params: Parameters that it belongs to.
        fresh: A state at the new widths.
        fresh_params: Parameters at the new widths.
    """
    split, size = ravel_pytree(params)[1], _size(params)

    def grown(old: Array, new: Array) -> Array:
        if old.shape == (size,) and new.shape == (_size(fresh_params),):
            return ravel_pytree(jax.tree.map(_padded, split(old), fresh_params))[0]
        return _padded(old, new)

    return jax.tree.map(grown, opt_state, fresh)


def _params_problems(params: PyTree, fresh: PyTree) -> list[str]:
    """Returns a line for each parameter that cannot grow as it would have to."""
    problems, wider = [], trees.named_leaves(fresh)
    for name, old in trees.named_leaves(params).items():
        before, after, parts = old.shape, wider[name].shape, name.split(".")
        if before == after:
            continue
        if any(part.startswith("LayerNorm") for part in parts):
            problems.append(f"{name}: a wider layer would be normalised by another mean and deviation")
        elif DENSE.get(parts[-1]) != len(before):
            problems.append(f"{name}: only dense layers can be widened, and this is {list(before)}")
        elif any(b < a for a, b in zip(before, after, strict=True)):
            problems.append(f"{name}: cannot shrink from {list(before)} to {list(after)}")
    return problems


def _pairs(old: PyTree, new: PyTree) -> list[tuple[Any, Any]]:
    """Returns the leaves of two trees whose shapes differ."""
    both = zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True)
    return [(a, b) for a, b in both if a.shape != b.shape]


def _is_like(tree: PyTree, other: PyTree) -> bool:
    """Tells whether two trees have the same structure."""
    structures: list[Any] = [jax.tree.structure(each) for each in (tree, other)]
    return structures[0] == structures[1]


def _size(params: PyTree) -> int:
    """Returns the number of parameters."""
    return sum(int(np.prod(x.shape)) for x in jax.tree.leaves(params))


def _corner(old: Array, new: Array) -> Array:
    """Writes ``old`` into the first corner of ``new``."""
    return new.at[tuple(slice(size) for size in old.shape)].set(old)


def _padded(old: Array, new: Array) -> Array:
    """Pads ``old`` with zeros to the shape of ``new``."""
    return _corner(old, jnp.zeros_like(new))
