"""The randomness that states hold, such as keys of later steps: whoever plans by a copy of a state draws it anew."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from purerl.types import Env, Key, PyTree

NAMES = "key", "rng", "rng_key", "_rng_key", "state_rng"
"""Names that fields of states have in libraries whose keys are plain arrays, uint32 ``[2]``."""
Redraw = Callable[[Key, PyTree], PyTree]


def redrawn(env: Env, key: Key, env_state: PyTree) -> PyTree:
    """Draws anew what a state of ``env`` holds of what is still to happen, as `Env.redraw` says. Consumes ``key``."""
    return env.redraw(key, env_state) if env.redraw else keys_redrawn(key, env_state)


def keys_redrawn(key: Key, env_state: PyTree, names: tuple[str, ...] = ()) -> PyTree:
    """Replaces the random keys of a state by others. Consumes ``key``.

    Args:
        key: What the new ones are drawn from.
        env_state: Any tree of arrays. Its typed keys are replaced.
        names: Names of fields of which plain keys, uint32 ``[2]``, are replaced too.
    """
    flat, structure = jax.tree_util.tree_flatten_with_path(env_state)
    named = lambda path, x: _is_plain(x) and jax.tree_util.keystr(path[-1:], simple=True) in names
    places = [i for i, (path, x) in enumerate(flat) if _is_typed(x) or named(path, x)]
    leaves = [x for _, x in flat]
    for i, new in zip(places, jax.random.split(key, len(places)) if places else (), strict=True):
        leaves[i] = _another(new, leaves[i])
    return jax.tree.unflatten(structure, leaves)


def named_redrawn(key: Key, env_state: PyTree) -> PyTree:
    """Replaces typed keys, and plain ones in fields called as in `NAMES`. Consumes ``key``."""
    return keys_redrawn(key, env_state, NAMES)


def within(redraw: Redraw | None) -> Redraw | None:
    """Returns `Env.redraw` for states that hold those of an environment as ``inner``."""
    return redraw and (lambda key, env_state: env_state._replace(inner=redraw(key, env_state.inner)))


def plain_keys(env: Env) -> list[str]:
    """Returns the paths of the leaves of ``env``'s states that look like plain keys, if it has no `Env.redraw`."""
    if env.redraw:
        return []
    env_state, _ = jax.eval_shape(env.reset, jax.random.key(0))
    return [jax.tree_util.keystr(path) for path, x in jax.tree.leaves_with_path(env_state) if _is_plain(x)]


def _is_typed(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _is_plain(x: Any) -> bool:
    return x.dtype == jnp.uint32 and x.shape == (2,)


def _another(key: Key, x: Any) -> Any:
    """Draws a key, or keys, like ``x``. Consumes ``key``."""
    if not _is_typed(x):
        return jax.random.bits(key, x.shape, x.dtype)
    return jax.random.wrap_key_data(jax.random.bits(key, jax.random.key_data(x).shape), impl=jax.random.key_impl(x))
