"""Adapter of Jumanji to `Env`. Jumanji (the extra ``purerl[jumanji]``) is imported on first use."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.catalogue import check_parameters
from purerl.envs.adapters.libraries import library
from purerl.envs.adapters.stepping import Consequence, check_counts, episodes
from purerl.errors import ConfigError
from purerl.spaces import Box, Discrete, MultiDiscrete, Space
from purerl.types import Array, Env, Key, PyTree

FEW = 64
"""The most values with which a number of Jumanji's kind ``DiscreteArray`` is shown as a one-hot vector."""

HIDDEN = "Minesweeper-v0", "RobotWarehouse-v0", "SearchAndRescue-v0"
"""Environments whose states hold what observations do not show: mines, and what is out of sight."""

_SIDES = ("minimum", -np.inf), ("maximum", np.inf)
"""Bounds of a spec, and what stands for one that it does not have."""


def make_jumanji(task: str, *, max_steps: int | None = None, **params: Any) -> Env:
    """Makes the environment registered in Jumanji as ``task``, for example ``Snake-v1``.

    ``max_steps`` is Jumanji's own time limit unless it is given; a few environments have none. Jumanji mostly reports
    its limit as a termination, so it is given one that is later by a step, which is never reached.

    Raises:
        ConfigError: If the name or a parameter is unknown, or Jumanji is not installed.
    """
    name = f"jumanji/{task}"
    check_parameters(name, params, ("max_steps",))
    check_counts(name, max_steps=(max_steps, 1))
    with library("jumanji", task):
        import jumanji

        environment = jumanji.make(task)
        limit = getattr(environment, "time_limit", None)
        if limit is not None:
            max_steps = limit if max_steps is None else max_steps
            environment = jumanji.make(task, time_limit=max_steps + 1)
    return from_jumanji(name, environment, max_steps=max_steps)._replace(hidden=task in HIDDEN)


def from_jumanji(name: str, environment: Any, *, max_steps: int | None = None) -> Env:
    """Adapts a Jumanji environment without wrappers, as that of one agent.

    - Observations are dicts of the fields of Jumanji's. Booleans stay, a ``DiscreteArray`` of ``n <= FEW`` values is
      one-hot (bool ``[n]``, all False for -1, which stands for none), and all else is float32 within its bounds.
    - Actions: integers that one mask of all their combinations covers become one number, `Discrete`; others are
      `MultiDiscrete` or a `Box` ``[A]``.
    - ``legal`` is the observation's ``action_mask``. Where it leaves no action, all are legal.
    - Rewards of several agents are summed. An episode terminates only where Jumanji ends it with discounts of 0. It is
      truncated where Jumanji ends it otherwise, and after ``max_steps`` steps, if given.

    A level is a key, and steps are deterministic.

    Raises:
        ConfigError: If a number is too small, or actions cannot be expressed.
    """
    with jax.ensure_compile_time_eval():
        space, observe = _observations(environment.observation_spec)
        masked = isinstance(space, dict) and "action_mask" in space
        actions, native, legal = _actions(name, environment.action_spec, space["action_mask"].shape if masked else None)

    def reset(key: Key) -> tuple[PyTree, PyTree]:
        state, timestep = environment.reset(key)
        return state, observe(timestep.observation)

    def step(state: PyTree, action: Array, _: tuple[()]) -> Consequence:
        state, timestep = environment.step(state, native(action))
        last = timestep.last()
        terminated = last & jnp.all(timestep.discount == 0)
        return Consequence(state, observe(timestep.observation), jnp.sum(timestep.reward), terminated, last)

    return episodes(name, reset, step, space, actions, max_steps=max_steps, legal=legal)


def _observations(spec: Any) -> tuple[Space, Callable[[Any], PyTree]]:
    """Returns the space that a spec of Jumanji describes, and a function that makes an element of it."""
    if not hasattr(spec, "shape"):
        parts = {field: _observations(part) for field, part in vars(spec).items() if not field.startswith("_")}
        space = {field: part for field, (part, _) in parts.items()}
        return space, lambda value: {field: observe(getattr(value, field)) for field, (_, observe) in parts.items()}
    if _is_number(spec) and spec.num_values <= FEW:
        n = int(spec.num_values)
        return Box(False, True, (n,), jnp.dtype(bool)), lambda value: value == np.arange(n)
    if spec.dtype == bool:
        return Box(False, True, tuple(spec.shape), spec.dtype), lambda value: value
    low, high = (np.asarray(getattr(spec, side, end), np.float32) for side, end in _SIDES)
    return Box(low, high, tuple(spec.shape), jnp.float32), lambda value: value


def _is_number(spec: Any) -> bool:
    """Returns whether a spec is Jumanji's ``DiscreteArray``: one integer from 0 on."""
    return tuple(spec.shape) == () and hasattr(spec, "num_values")


def _actions(
    name: str, spec: Any, mask: tuple[int, ...] | None
) -> tuple[Space, Callable[[Array], Array], Callable[[PyTree], Array] | None]:
    """Returns the space of actions, a function that turns one into Jumanji's, and `Env.legal`.

    ``mask`` is the shape of the mask of legal actions, if there is one.
    """
    if not jnp.issubdtype(spec.dtype, jnp.integer):
        low, high = (np.broadcast_to(bound, spec.shape).reshape(-1) for bound in (spec.minimum, spec.maximum))
        return Box(low, high, low.shape, jnp.float32), lambda action: action.reshape(spec.shape), None
    cast = lambda action: jnp.asarray(action, spec.dtype)
    if _is_number(spec):
        return Discrete(int(spec.num_values)), cast, _legal(mask, joint=True) if mask else None
    sizes = tuple(int(n) for n in np.ravel(getattr(spec, "num_values", ())))
    if mask is None and sizes:
        return MultiDiscrete(sizes), cast, None
    if mask is not None and mask == sizes:
        unravel = lambda action: jnp.stack(jnp.unravel_index(action, sizes))
        return Discrete(math.prod(sizes)), lambda action: cast(unravel(action)), _legal(mask, joint=True)
    if mask is not None and mask[:-1] == tuple(spec.shape) and len(mask) == 2:
        return MultiDiscrete((mask[1],) * mask[0]), cast, _legal(mask, joint=False)
    raise ConfigError(f"env = {name!r}: actions {spec} with a mask {mask} cannot be expressed")


def _legal(mask: tuple[int, ...], joint: bool) -> Callable[[PyTree], Array]:
    """Returns `Env.legal` of masks of this shape.

    They are of one number, ``joint``, or of several, the last axis being that of one.
    """

    def legal(obs: PyTree) -> Array:
        allowed = obs["action_mask"]
        lead = allowed.shape[: allowed.ndim - len(mask)]
        allowed = allowed.reshape(*lead, *((-1,) if joint else mask))
        allowed = allowed | ~jnp.any(allowed, axis=-1, keepdims=True)
        return allowed.reshape(*lead, -1)

    return legal
