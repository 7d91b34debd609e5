"""Adapter of gymnax environments to `Env`. gymnax is imported on first use, because the import takes seconds."""

import dataclasses
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl.catalogue import GYMNAX, check_parameters, fitted
from purerl.envs.adapters.stepping import into
from purerl.errors import ConfigError
from purerl.names import nearest
from purerl.spaces import Box, Discrete, Space
from purerl.types import Array, Env, Key, PyTree, Step

_WRONG_BOUNDS = ("MemoryChain-bsuite", "MetaMaze-misc", "GaussianBandit-misc")
"""Environments of gymnax 1.0 whose observations can lie outside their declared space."""
BINARY = (
    "Asterix-MinAtar",
    "Breakout-MinAtar",
    "Freeway-MinAtar",
    "Seaquest-MinAtar",
    "SpaceInvaders-MinAtar",
    "Catch-bsuite",
    "DeepSea-bsuite",
)
"""Environments of gymnax 1.0 whose float32 observations consist of zeros and ones."""

PARTLY_OBSERVED = "MemoryChain-bsuite", "MetaMaze-misc", "BernoulliBandit-misc", "GaussianBandit-misc"
"""Environments in which earlier observations of the episode matter."""

HIDDEN = "SimpleBandit-bsuite", "PointRobot-misc"
"""Environments whose episodes draw what no observation shows: the rewards of arms, the goal."""

TERMINATING = ("DiscountingChain-bsuite",)
"""Environments that gymnax 1.0 truncates where their originals terminate.

bsuite's chain terminates after its 100 steps, which the observation counts down to (github.com/google-deepmind/bsuite,
environments/discounting_chain.py).
"""


def make_gymnax(name: str, **params: Any) -> Env:
    """Makes the environment registered in gymnax as ``name``.

    ``params`` override fields of its ``EnvParams``, which may be traced, or are arguments of its constructor, which may
    not.

    Raises:
        ConfigError: If gymnax does not have the name or a parameter, and for MNISTBandit-bsuite, which needs a
            download.
    """
    if name == "MNISTBandit-bsuite":
        raise ConfigError(f"env = {name!r}: not supported, since it needs a download")
    with jax.ensure_compile_time_eval():  # Otherwise gymnax's constants become tracers of a caller's jit.
        import gymnax

        if name not in gymnax.registered_envs:
            raise ConfigError(f"env = {name!r}: gymnax has no such environment; nearest: {nearest(name, GYMNAX)}")
        environment, env_params = gymnax.make(name)
        signature = inspect.signature(type(environment).__init__).parameters.values()
        arguments = {p.name for p in signature if p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "self"}
        fields = {field.name for field in dataclasses.fields(env_params)}
        check_parameters(name, params, arguments | fields)
        defaults = {p.name: p.default for p in signature} | {field: getattr(env_params, field) for field in fields}
        params = fitted(name, params, defaults)
        constructor = {key: value for key, value in params.items() if key not in fields}
        if constructor:
            environment, env_params = gymnax.make(name, **constructor)
    env_params = env_params.replace(**{key: params[key] for key in fields & set(params)})
    return from_gymnax(name, environment, env_params)


def from_gymnax(name: str, environment: Any, env_params: Any) -> Env:
    """Adapts a gymnax 1.0 environment. A level is a key, and so is the noise of a step.

    A step is never both terminated and truncated. A `Discrete` observation becomes one-hot float32; binary observations
    (`BINARY`) become bool. Any other `Box` keeps its declared dtype, or takes that of the observations if it is wider.

    Raises:
        ConfigError: If a space is another.
    """
    with jax.ensure_compile_time_eval():
        action_space = _space(name, "action", environment.action_space(env_params))
        declared = _space(name, "observation", environment.observation_space(env_params))
    with jax.numpy_rank_promotion("allow"):
        emitted, state_like = jax.eval_shape(lambda key: environment.reset_env(key, env_params), jax.random.key(0))
    observation_space = _observed(name, declared, emitted.dtype)

    def observe(obs: Array) -> Array:
        if isinstance(declared, Discrete):
            return jax.nn.one_hot(obs, declared.n, dtype=jnp.float32)
        return jnp.asarray(obs, observation_space.dtype)

    def strong(env_state: PyTree) -> PyTree:
        return jax.tree.map(lambda x, like: jnp.asarray(x, like.dtype), env_state, state_like)

    def begin(key: Key) -> tuple[PyTree, Array]:
        with jax.numpy_rank_promotion("allow"):
            obs, env_state = environment.reset_env(key, env_params)
        return strong(env_state), observe(obs)

    def step(key: Key, env_state: PyTree, action: Array) -> tuple[PyTree, Step]:
        action = into(action_space, action)
        with jax.numpy_rank_promotion("allow"):  # Some of gymnax relies on rank promotion.
            obs, env_state, reward, terminated, _ = environment.step_env(key, env_state, action, env_params)
            truncated = environment.is_truncated(env_state, env_params)
        terminated = jnp.asarray(terminated | truncated if name in TERMINATING else terminated, bool)
        truncated = jnp.asarray(truncated, bool) & ~terminated
        return strong(env_state), Step(observe(obs), jnp.asarray(reward, jnp.float32), terminated, truncated)

    env = Env(name, jax.random.split, begin, jax.random.split, step, observation_space, action_space)
    sampled = getattr(env_params, "sample_action_map", False) is not False  # DeepSea-bsuite's, in each episode
    return env._replace(partly_observed=name in PARTLY_OBSERVED, hidden=name in HIDDEN or sampled)


def _space(name: str, role: str, space: Any) -> Space:
    """Returns a gymnax space as one of `purerl.spaces`. Raises `ConfigError` for other kinds than Box and Discrete."""
    from gymnax.environments import spaces

    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n))
    if isinstance(space, spaces.Box):
        return Box(_number(space.low), _number(space.high), tuple(space.shape), jnp.dtype(space.dtype))
    raise ConfigError(f"env = {name!r}: {role} space {type(space).__name__} is not supported, only Box and Discrete")


def _number(bound: Any) -> Any:
    """Returns a bound as a numpy array, unless it is traced."""
    return bound if isinstance(bound, jax.core.Tracer) else np.asarray(bound)


def _observed(name: str, declared: Space, emitted: Any) -> Box:
    """Returns the space of adapted observations, given the declared one and the dtype ``emitted`` of actual ones."""
    if isinstance(declared, Discrete):
        return Box(0.0, 1.0, (declared.n,), jnp.float32)
    if name in BINARY:
        return Box(False, True, declared.shape, jnp.dtype(bool))
    declared = declared._replace(dtype=jnp.promote_types(declared.dtype, emitted))
    return declared._replace(low=-np.inf, high=np.inf) if name in _WRONG_BOUNDS else declared
