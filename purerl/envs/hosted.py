"""Environments of the host as an `Env`: what programs compute from the results of the host's steps."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from purerl import spaces
from purerl.errors import ConfigError
from purerl.hosts import making, pool
from purerl.hosts.bundle import HostEnv
from purerl.spaces import Box, Discrete, MultiDiscrete, Space
from purerl.types import Array, Env, Key, PyTree, Step

ON_HOST = tuple(making.TRANSFORMS)
"""Transforms that the host applies, because they change which actions are executed, or when an episode ends."""


def make_hosted(name: str, params: dict[str, Any]) -> Env:
    """Makes the environment of the host called ``name``.

    ``params`` are its own parameters and the transforms that the host applies. Tells its notes on the standard error,
    each once.

    Raises:
        ConfigError: If `hosts.making.make` refuses something, a parameter is traced, or ``resets`` is given.
    """
    for given, value in params.items():
        if given == "resets":
            raise ConfigError(
                f"env = {name!r}: resets = {value!r}: is not supported for host environments, which reset themselves"
            )
        if isinstance(value, jax.core.Tracer):
            raise ConfigError(f"env = {name!r}: {given}: cannot be swept in a host environment")
    host = making.make(name, params)
    for line in [f"env = {name!r}: {note}" for note in host.notes]:
        if line not in _TOLD:
            _TOLD.add(line)
            pool.to_stderr(line)
    return from_host(host)


_TOLD: set[str] = set()
"""The notes that this process has told."""


def from_host(host: HostEnv) -> Env:
    """Translates an environment of the host.

    A level is the first observation of an episode, ``noise`` is the `Step` that the host's step resulted in, and
    ``step`` returns it; wrappers act on both as on those of any environment. What is drawn are zeros of their shapes.
    The state is who of several agents acts next, if the host tells it.
    """
    space, agents = space_of(host.observation_space), host.num_agents
    lead = () if agents == 1 else (agents,)
    like: Any = spaces.struct(space)
    like = (like, jax.ShapeDtypeStruct((), bool)) if host.seats else like

    def levels(key: Key, shape: tuple[int, ...]) -> PyTree:
        return jax.tree.map(lambda x: jnp.zeros((*shape, *lead, *x.shape), x.dtype), like)

    def begin(level: PyTree) -> tuple[PyTree, PyTree]:
        return (level[1], level[0]) if host.seats else ((), level)

    def noise(key: Key, shape: tuple[int, ...]) -> Step:
        flags = jnp.zeros((*shape, *lead), bool)
        return Step(levels(key, shape), jnp.zeros((*shape, *lead), jnp.float32), flags, flags)

    def step(noise: Step, env_state: PyTree, action: Array) -> tuple[PyTree, Step]:
        if agents == 1:
            return env_state, noise
        made = noise._replace(over=jnp.broadcast_to(jnp.all(noise.last), (agents,)))
        if not host.seats:
            return env_state, made
        next_obs, present = noise.next_obs
        return present, made._replace(next_obs=next_obs)

    mask = host.legal
    return Env(
        host.name,
        levels,
        begin,
        noise,
        step,
        space,
        space_of(host.action_space),
        legal=None if mask is None else lambda obs: jnp.asarray(obs[mask], bool),
        num_agents=agents,
        partly_observed=host.partly_observed,
        host=host,
        present=(lambda env_state: env_state) if host.seats else None,
        zero_sum=host.zero_sum,
    )


def space_of(space: Any) -> Space:
    """Translates a plain space of Gymnasium (`hosts.leaves.plain`)."""
    kind = type(space).__name__
    if kind == "Dict":
        return {key: space_of(part) for key, part in space.spaces.items()}
    if kind == "Tuple":
        return tuple(map(space_of, space.spaces))
    if kind == "Discrete":
        return Discrete(int(space.n))
    if kind == "MultiDiscrete":
        return MultiDiscrete(tuple(map(int, space.nvec)))
    return Box(_bound(space.low), _bound(space.high), space.shape, jnp.dtype(space.dtype))


def _bound(bound: np.ndarray) -> Any:
    """Returns a bound; one number where all of its elements are equal."""
    return bound.flat[0].item() if np.all(bound == bound.flat[0]) else bound


def on_device(env: Env, instead: str) -> None:
    """Raises `ConfigError`, which says what can be done ``instead``, if ``env`` is of the host."""
    if env.host:
        raise ConfigError(f"env = {env.name!r}: is a host environment, which JAX cannot trace; {instead}")
