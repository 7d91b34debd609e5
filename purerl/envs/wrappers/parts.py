"""What several wrappers share: beginning anew, noise of their own, and what they cannot be put around."""

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


def ended(step: Step) -> Array:
    """Whether the episode ended with this step, either way."""
    return step.terminated | step.truncated


def seen_as(env: Env, view: Callable[[PyTree], PyTree], space: Space) -> Env:
    """``env`` with every observation seen through ``view``, whose results are elements of ``space``."""

    def reset(key: Key) -> tuple[PyTree, PyTree]:
        env_state, obs = env.reset(key)
        return env_state, view(obs)

    def step(noise: PyTree, env_state: PyTree, action: Array) -> tuple[PyTree, Step]:
        env_state, step = env.step(noise, env_state, action)
        return env_state, step._replace(obs=view(step.obs), next_obs=view(step.next_obs))

    return env._replace(reset=reset, step=step, observation_space=space)


def begin(which: Array, fresh: tuple[PyTree, PyTree], env_state: PyTree, step: Step) -> tuple[PyTree, Step]:
    """The state and the `Step`; if ``which``, with the state and first observation of ``fresh``, as ``Env.reset`` gives
    them, in place of those that the policy would have met next."""
    first, obs = fresh
    return choose(which, first, env_state), step._replace(obs=choose(which, obs, step.obs))


def with_noise(env: Env, wrapper: str, draw: Callable[[Key, tuple[int, ...]], PyTree]) -> Callable[..., PyTree]:
    """A function ``noise`` that gives that of ``env``, in the numbers that it has without the wrapper, and what
    ``draw(key, shape)`` draws from a key of the wrapper's own."""
    salt = zlib.crc32(wrapper.encode())

    def noise(key: Key, shape: tuple[int, ...]) -> tuple[PyTree, PyTree]:
        return env.noise(key, shape), draw(jax.random.fold_in(key, salt), shape)

    return noise


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
