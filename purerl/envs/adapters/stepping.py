"""The common part of adapters: an `Env` from the functions of a library's environment that does not reset itself."""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import spaces, trees
from purerl.envs import chance as randomness
from purerl.envs.episodic import no_noise
from purerl.errors import ConfigError
from purerl.spaces import Box, Space
from purerl.types import Array, Design, Env, Key, PyTree, Step


class Episode(NamedTuple):
    """The library's own state, and the number of steps taken in this episode (int32)."""

    inner: PyTree
    time: Array


class Consequence(NamedTuple):
    """The result of one step of the library's environment; ``obs`` is the true next observation, the flags are bool."""

    state: PyTree
    obs: PyTree
    reward: Array | float
    terminated: Array | bool
    truncated: Array | bool


def check_counts(name: str, **counts: tuple[int | None, int]) -> None:
    """Raises `ConfigError` unless every count, given with its least value, is a whole number or None."""
    for field, (value, least) in counts.items():
        if value is not None and (type(value) is not int or value < least):
            raise ConfigError(f"env = {name!r}: {field} = {value!r}: must be a whole number >= {least}")


def into(space: Space, action: Array) -> Array:
    """Clips ``action`` to ``space``, one leaf, in its dtype."""
    if isinstance(space, Box):
        return jnp.asarray(jnp.clip(action, space.low, space.high), space.dtype)
    low, high = spaces.bounds(space)
    return jnp.clip(jnp.asarray(action, jnp.int32), low, high)


def unbounded(tree: PyTree, lead: int = 0) -> Space:
    """Returns the space of all arrays of the shapes and dtypes of ``tree``, without their first ``lead`` axes."""

    def box(x: Any) -> Box:
        bounds: tuple[Any, Any] = (np.float32(-np.inf), np.float32(np.inf))
        if x.dtype == bool:
            bounds = False, True
        elif jnp.issubdtype(x.dtype, jnp.integer):
            bounds = jnp.iinfo(x.dtype).min, jnp.iinfo(x.dtype).max
        return Box(*bounds, tuple(x.shape[lead:]), x.dtype)

    return jax.tree.map(box, tree)


@contextlib.contextmanager
def lenient() -> Iterator[None]:
    """Allows libraries rank promotion within the context, and hides warnings that concern their authors."""
    with jax.numpy_rank_promotion("allow"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def episodes(
    name: str,
    reset: Callable[[Key], tuple[PyTree, PyTree]],
    step: Callable[[PyTree, Array, PyTree], Consequence],
    observation_space: Space,
    action_space: Space,
    *,
    chance: Callable[[Key, tuple[int, ...]], PyTree] | None = None,
    max_steps: int | None = None,
    legal: Callable[[PyTree], Array] | None = None,
    num_agents: int = 1,
) -> Env:
    """Makes an `Env` of an environment without automatic reset, whose numbers may be of any dtype.

    A level is a key. `Env.redraw` replaces the keys that states hold in fields called as in `chance.NAMES`.

    Args:
        name: The name of the `Env`.
        reset: ``reset(key)`` consumes its key and returns the first state and observation.
        step: ``step(state, action, noise)`` returns a `Consequence`. Actions come clipped to ``action_space``.
        observation_space: The space that observations are cast to.
        action_space: The space of actions.
        chance: ``chance(key, shape)`` draws the ``noise`` of ``shape`` many steps; None: steps are deterministic, and
            their noise is ``()``.
        max_steps: Steps after which an episode is truncated; None: only ``step`` ends it. A termination wins over
            either.
        legal: As in `Env`.
        num_agents: With several, observations, actions and rewards lead with that many, and a `Consequence` has one
            flag of each kind for all, or one for each.

    Raises:
        ConfigError: If a count is too small.
    """
    check_counts(name, max_steps=(max_steps, 1))
    obs_like = spaces.struct(observation_space)

    def begin(key: Key) -> tuple[Episode, PyTree]:
        with lenient():
            inner, obs = reset(key)
        return Episode(trees.strong(inner), jnp.zeros((), jnp.int32)), _cast(obs, obs_like)

    state_like = jax.eval_shape(begin, jax.random.key(0))[0].inner

    def for_all(flag: Array) -> Array:
        return flag if num_agents == 1 else jnp.broadcast_to(flag, (num_agents,))

    def advance(noise: PyTree, env_state: Episode, action: Array) -> tuple[Episode, Step]:
        with lenient():
            inner, obs, reward, terminated, truncated = step(env_state.inner, into(action_space, action), noise)
        inner, obs = _cast(inner, state_like), _cast(obs, obs_like)
        time = env_state.time + 1
        terminated, truncated = jnp.asarray(terminated, bool), jnp.asarray(truncated, bool)
        truncated = (truncated if max_steps is None else truncated | (time >= max_steps)) & ~terminated
        result = Step(obs, jnp.asarray(reward, jnp.float32), for_all(terminated), for_all(truncated))
        return Episode(inner, time), result

    return Env(
        name,
        jax.random.split,
        begin,
        chance or no_noise,
        advance,
        observation_space,
        action_space,
        legal,
        num_agents,
        redraw=randomness.within(randomness.named_redrawn),
    )


SEEDS = 256
"""The number of levels that can be built where a level is a key."""


def seeds(solved: float | None) -> Design:
    """Makes the `Design` of an environment whose levels are keys of a generator.

    A change is another draw, and the choice is one of `SEEDS` keys. ``solved`` is as in `Design`.
    """
    return Design(lambda key, level: key, (SEEDS,), lambda key, choices: jax.random.key(choices[0]), solved)


def _cast(tree: PyTree, like: PyTree) -> PyTree:
    """Casts the leaves of a tree to arrays in the dtypes of another."""
    return jax.tree.map(lambda x, y: jnp.asarray(x, y.dtype), tree, like)
