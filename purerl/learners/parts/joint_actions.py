"""The actions of algorithms that learn a value for each, by number.

They are those of a Discrete space, or every combination of the parts of a MultiDiscrete one.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from purerl import spaces
from purerl.spaces import Discrete, MultiDiscrete
from purerl.types import Array, Env, PyTree

MOST = 2**16
"""The largest number of combinations that are enumerated."""


class JointActions(NamedTuple):
    """The ``num`` actions, by number from 0 to ``num - 1``.

    ``legal(obs)`` is the mask ``[..., num]`` of the actions that may be taken, or None if all may.
    """

    num: int
    action: Callable[[Array], Array]  # (number [...]) -> the environment's action
    number: Callable[[Array], Array]  # (the environment's action) -> number [...]
    legal: Callable[[PyTree], Array | None]


def joint_actions(env: Env) -> JointActions:
    """Enumerates the actions of ``env``, which must be Discrete or MultiDiscrete."""
    space = env.action_space
    legal: Callable[[PyTree], Array | None] = env.legal or (lambda obs: None)
    if isinstance(space, Discrete):
        return JointActions(space.n, lambda number: number, lambda action: action, legal)
    sizes = space.sizes
    strides = np.array([int(np.prod(sizes[i + 1 :])) for i in range(len(sizes))], np.int32)
    table = np.stack(np.unravel_index(np.arange(spaces.num_values(space)), sizes), axis=-1).astype(np.int32)

    def number(action: Array) -> Array:
        return jnp.sum(action * strides.reshape(*[1] * (action.ndim - 1), -1), axis=-1).astype(jnp.int32)

    def joint_legal(obs: PyTree) -> Array | None:
        mask = legal(obs)
        if mask is None:
            return None
        parts = jnp.split(mask, np.cumsum(sizes)[:-1], axis=-1)
        return jnp.all(jnp.stack([part[..., table[:, i]] for i, part in enumerate(parts)]), axis=0)

    return JointActions(len(table), lambda i: jnp.asarray(table)[i], number, joint_legal)


def problems(env: Env | None) -> list[str]:
    """Returns the reasons why the actions of ``env`` (None: not known) cannot be numbered, a line each."""
    if env is None or not isinstance(env.action_space, MultiDiscrete) or spaces.problems("", env.action_space):
        return []
    count = spaces.num_values(env.action_space)
    return [] if count <= MOST else [f"env = {env.name!r}: has {count} combinations of actions; at most {MOST}"]
