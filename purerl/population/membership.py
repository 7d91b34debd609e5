"""Members of a population: the arguments and the key of each."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purerl.types import Key, PyTree


class Members(NamedTuple):
    """The keyword arguments (``given``) and the key of each member; every leaf has the leading axis ``[P]``."""

    given: dict[str, PyTree]
    keys: Key

    @property
    def size(self) -> int:
        """The number ``P`` of members."""
        return self.keys.shape[0]


def members(
    configs: Any, keys: Key, *, env_params: dict[str, Any] | None = None, meta_params: PyTree | None = None
) -> Members:
    """Returns the members of a population, with everything that all members share repeated.

    Args:
        configs: A config whose floats are scalars that all members share, or vectors ``[P]``.
        keys: One key that all members share (common random numbers), or ``[P]``.
        env_params: Parameters of the environment by name, scalars or ``[P]``.
        meta_params: A tree whose leaves have the leading axis ``[P]``.

    Raises:
        ValueError: The lengths differ.
    """
    given = {"config": configs} | ({} if env_params is None else {"env_params": env_params})
    floats = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), given)
    lengths = {x.shape[0] for x in jax.tree.leaves((floats, keys)) if x.ndim}
    if meta_params is not None:
        lengths |= {x.shape[0] for x in jax.tree.leaves(meta_params)}
    if len(lengths) > 1:
        raise ValueError(f"members: lengths differ: {sorted(lengths)}")
    size = lengths.pop() if lengths else 1
    shared = jax.tree.map(lambda x: x if x.ndim else jnp.broadcast_to(x, (size,)), (floats, keys))
    return Members(shared[0] | ({} if meta_params is None else {"meta_params": meta_params}), shared[1])
