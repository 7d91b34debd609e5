"""Domain randomisation: every episode has an environment with parameters of its own."""

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from purerl import draw, spaces
from purerl.envs.wrappers.kinds import RANGES
from purerl.envs.wrappers.parts import begin, choose, ended, needs_one_agent, with_noise
from purerl.errors import ConfigError
from purerl.spaces import Box, Leaf
from purerl.types import Array, Env, Key, PyTree, Step


class Randomised(NamedTuple):
    """The state of the environment within, and the parameters of this episode by name (float32)."""

    inner: PyTree
    parameters: dict[str, Array]


def randomise(name: str, make: Callable[..., Env], ranges: Any) -> Env:
    """The environment ``name``, which is ``make(**parameters)``, with parameters that each episode draws anew.

    They are drawn uniformly and independently of each other. Tobin et al. 2017 (arXiv 1703.06907), domain
    randomisation; of physical parameters, Peng et al. 2018 (arXiv 1710.06537). ``ranges`` are text,
    ``"length:0.4:0.6,mass:0.8:1.2"``, or a mapping of names to pairs. ``make`` is called with traced float32 parameters
    inside the step. Spaces hold those of every corner of the ranges. The noise of a step gains what the next episode
    begins with: a uniform number for each parameter, and a key.

    Raises `ConfigError` for what ``make`` refuses, for a parameter that cannot be traced or on which the noise depends,
    which is drawn before the parameters are, and for several agents.
    """
    ends = RANGES.of(name, "randomise", ranges)
    corners = [make(**dict(zip(ends, corner, strict=True))) for corner in itertools.product(*ends.values())]
    plain = corners[0]
    needs_one_agent(plain, "randomise")
    low, high = (np.array(end, np.float32) for end in zip(*ends.values(), strict=True))
    for i, parameter in enumerate(ends):
        others = {other: pair[0] for other, pair in ends.items() if other != parameter}
        _check_traced(f"env = {name!r}: randomise: {parameter}", make, parameter, others, np.array([low[i], high[i]]))

    def parameters(uniform: Array) -> dict[str, Array]:
        drawn = low + uniform * (high - low)
        return {parameter: drawn[i] for i, parameter in enumerate(ends)}

    def uniform(key: Key, shape: tuple[int, ...]) -> Array:
        return draw.uniform(key, (*shape, len(ends)))

    def noise_of_beginning(key: Key, shape: tuple[int, ...]) -> tuple[Array, Key]:
        key_parameters, key_reset = jax.random.split(key)
        return uniform(key_parameters, shape), jax.random.split(key_reset, shape)

    def reset(key: Key) -> tuple[Randomised, PyTree]:
        key_parameters, key_reset = jax.random.split(key)
        drawn = parameters(uniform(key_parameters, ()))
        inner, obs = make(**drawn).reset(key_reset)
        return Randomised(inner, drawn), obs

    def step(noise: tuple[PyTree, Any], env_state: Randomised, action: Array) -> tuple[Randomised, Step]:
        noise_step, (noise_parameters, key_reset) = noise
        inner, step = make(**env_state.parameters).step(noise_step, env_state.inner, action)
        last, drawn = ended(step), parameters(noise_parameters)
        inner, step = begin(last, make(**drawn).reset(key_reset), inner, step)
        return Randomised(inner, choose(last, drawn, env_state.parameters)), step

    return plain._replace(
        reset=reset,
        noise=with_noise(plain, "randomise", noise_of_beginning),
        step=step,
        observation_space=spaces.tree_map(_hull, *[env.observation_space for env in corners]),
        action_space=spaces.tree_map(_hull, *[env.action_space for env in corners]),
    )


def _check_traced(told: str, make: Callable[..., Env], parameter: str, others: dict[str, float], pair: Any) -> None:
    """Raises `ConfigError`, which begins with ``told``, if the environment cannot be made with a traced ``parameter``,
    or draws noise that depends on it: of the ``pair`` of its values, mapped, the noise must not be mapped."""
    key = jax.random.key(0)
    made = lambda x: make(**{parameter: x}, **others)
    try:
        jax.eval_shape(lambda x: made(x).reset(key), pair[0])
    except Exception as error:
        raise ConfigError(f"{told}: cannot be drawn ({type(error).__name__} when it is traced)") from None
    try:
        jax.eval_shape(jax.vmap(lambda x: made(x).noise(key, ()), out_axes=None), pair)
    except ValueError:
        raise ConfigError(f"{told}: the noise depends on it, which is drawn before the parameters are") from None


def _hull(leaf: Any, *others: Any) -> Leaf:
    """The smallest leaf that holds all of these, which differ in the bounds of a `Box` at most."""
    if not isinstance(leaf, Box):
        return leaf
    lows, highs = zip(*((other.low, other.high) for other in (leaf, *others)), strict=True)
    low = functools.reduce(spaces.array_namespace(*lows).minimum, lows)
    return leaf._replace(low=low, high=functools.reduce(spaces.array_namespace(*highs).maximum, highs))
