"""The common parts of wrappers: a state and draws of their own, and checks of the environment within."""

import zlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from purerl.envs import chance
from purerl.errors import ConfigError
from purerl.spaces import Space
from purerl.types import Array, Env, Key, PyTree, Step


def choose(which: Array, new: PyTree, old: PyTree) -> PyTree:
    """Returns the leaves of ``new`` if ``which`` (bool ``[]``), else those of ``old``."""
    return jax.tree.map(lambda n, o: jnp.where(which, n, o), new, old)


def holding(
    env: Env,
    hold: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
    step: Callable[[PyTree, PyTree, Array], tuple[PyTree, Step]],
    **fields: Any,
) -> Env:
    """Returns ``env`` with a wrapper's own states, which hold its states as ``inner``.

    Args:
        env: The environment within.
        hold: ``(inner, obs) -> (env_state, obs)``, the beginning of an episode that begins with these in ``env``.
        step: Replaces that of ``env``.
        **fields: Replace those of ``env``.
    """
    present = env.present
    held = {
        "keep": kept(env),
        "present": present and (lambda env_state: present(env_state.inner)),
        "redraw": chance.within(env.redraw),
        **fields,
    }
    return env._replace(begin=lambda level: hold(*env.begin(level)), step=step, **held)


def kept(env: Env) -> Callable[[PyTree, PyTree], PyTree] | None:
    """Returns `Env.keep` for states that hold those of ``env`` as ``inner``."""
    keep = env.keep
    return keep and (lambda before, begun: begun._replace(inner=keep(before.inner, begun.inner)))


def with_view(env: Env, view: Callable[[PyTree], PyTree], space: Space) -> Env:
    """Returns ``env`` with every observation changed by ``view``, whose results are elements of ``space``."""

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
    """Returns a draw of pairs.

    The first is what ``inner`` draws, in the numbers that it has without the wrapper, the second what ``own`` draws
    from a key of the wrapper's own.
    """
    salt = zlib.crc32(wrapper.encode())
    return lambda key, shape: (inner(key, shape), own(jax.random.fold_in(key, salt), shape))


def needs(kind: type, env: Env, role: str, space: Space, wrapper: str) -> Any:
    """Returns ``space``, if it is of this kind; otherwise raises `ConfigError`.

    Args:
        kind: The class that the space must be of.
        env: The environment within, for the error.
        role: What the space is of, "observation" or "action".
        space: The space.
        wrapper: The name of the wrapper.
    """
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
