"""What several wrappers share: a state of their own, draws of their own, and what they cannot be put around."""

import zlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from purerl.errors import ConfigError
from purerl.spaces import Space
from purerl.types import Array, Env, Key, PyTree, Step


def choose(which: Array, new: PyTree, old: PyTree) -> PyTree:
    """The leaves of ``new`` if ``which`` (bool ``[]``), else those of ``old``."""
    return jax.tree.map(lambda n, o: jnp.where(which, n, o), new, old)


def holding(
    env: Env,
    hold: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
    step: Callable[[PyTree, PyTree, Array], tuple[PyTree, Step]],
    **fields: Any,
) -> Env:
    """``env`` with states of a wrapper's own, which hold its states as ``inner``.

    ``hold(inner, obs) -> (env_state, obs)`` is the beginning of an episode that begins so in ``env``; ``step`` and the
    other ``fields`` replace those of ``env``.
    """
    return env._replace(begin=lambda level: hold(*env.begin(level)), step=step, keep=kept(env), **fields)


def kept(env: Env) -> Callable[[PyTree, PyTree], PyTree] | None:
    """`Env.keep` for states that hold those of ``env`` as ``inner``."""
    keep = env.keep
    return keep and (lambda before, begun: begun._replace(inner=keep(before.inner, begun.inner)))


def seen_as(env: Env, view: Callable[[PyTree], PyTree], space: Space) -> Env:
    """``env`` with every observation seen through ``view``, whose results are elements of ``space``."""

    def begin(level: PyTree) -> tuple[PyTree, PyTree]:
        env_state, obs = env.begin(level)
        return env_state, view(obs)

    def step(noise: PyTree, env_state: PyTree, action: Array) -> tuple[PyTree, Step]:
        env_state, step = env.step(noise, env_state, action)
        return env_state, step._replace(next_obs=view(step.next_obs))

    return env._replace(begin=begin, step=step, observation_space=space)


Draw = Callable[[Key, tuple[int, ...]], PyTree]
"""Draws ``shape`` many elements; consumes its key."""


def beside(inner: Draw, wrapper: str, own: Draw) -> Draw:
    """A draw of pairs: what ``inner`` draws, in the numbers that it has without the wrapper, and what ``own`` draws
    from a key of the wrapper's own."""
    salt = zlib.crc32(wrapper.encode())
    return lambda key, shape: (inner(key, shape), own(jax.random.fold_in(key, salt), shape))


def needs(kind: type, env: Env, role: str, space: Space, wrapper: str) -> Any:
    """``space``, if it is of this kind; otherwise raises `ConfigError`."""
    if not isinstance(space, kind):
        raise ConfigError(
            f"env = {env.name!r}: has {type(space).__name__} {role}s; {wrapper} needs {kind.__name__} {role}s"
        )
    return space


def needs_all_legal(env: Env, wrapper: str, would: str) -> None:
    """Raises `ConfigError` if some actions are illegal; ``would`` says what the wrapper would do with them."""
    if env.legal:
        raise ConfigError(f"env = {env.name!r}: has illegal actions, which {wrapper} would {would}")


def needs_one_agent(env: Env, wrapper: str) -> None:
    """Raises `ConfigError` if there are several agents."""
    if env.num_agents > 1:
        raise ConfigError(f"env = {env.name!r}: has {env.num_agents} agents; {wrapper} needs one")
