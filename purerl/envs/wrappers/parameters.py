"""Domain randomisation: every episode has an environment with parameters of its own."""

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import draw, spaces
from purerl.envs import chance
from purerl.envs.wrappers.kinds import RANGES
from purerl.envs.wrappers.parts import kept, needs_one_agent
from purerl.errors import ConfigError
from purerl.spaces import Box, Leaf
from purerl.types import Array, Design, Env, Key, PyTree, Step

REACH = 0.1
"""How far a change moves a parameter at most, as a fraction of its range."""
PARTS = 16
"""The number of equal parts of a range; a choice takes the middle of one."""


class Randomised(NamedTuple):
    """The state of the environment within, and the parameters of this episode by name (float32)."""

    inner: PyTree
    parameters: dict[str, Array]


def randomise(name: str, make: Callable[..., Env], ranges: Any) -> Env:
    """Returns the environment ``name``, which is ``make(**parameters)``, with parameters that each episode draws anew.

    They are drawn uniformly and independently of each other. Tobin et al. 2017 (arXiv 1703.06907), domain
    randomisation; of physical parameters, Peng et al. 2018 (arXiv 1710.06537). ``ranges`` are text,
    ``"length:0.4:0.6,mass:0.8:1.2"``, or a mapping of names to pairs. ``make`` is called with traced float32 parameters
    inside the step. Spaces hold those of every corner of the ranges. A level is the parameters, by name, and a level of
    the environment within; it can be chosen by a curriculum. A change moves one parameter by at most `REACH` of its
    range, within that range, and changes the level within if that can be changed. A choice for each parameter is one of
    `PARTS` values, and the choices of the level within come after them.

    Raises:
        ConfigError: If ``make`` refuses its parameters, if a parameter cannot be traced, if levels or noise depend on
            one, since they are drawn for all parameters alike, or if there are several agents.
    """
    ends = RANGES.of(name, "randomise", ranges)
    corners = [make(**dict(zip(ends, corner, strict=True))) for corner in itertools.product(*ends.values())]
    plain = corners[0]
    needs_one_agent(plain, "randomise")
    low, high = (np.array(end, np.float32) for end in zip(*ends.values(), strict=True))
    for i, parameter in enumerate(ends):
        others = {other: pair[0] for other, pair in ends.items() if other != parameter}
        _check_traced(f"env = {name!r}: randomise: {parameter}", make, parameter, others, np.array([low[i], high[i]]))

    def levels(key: Key, shape: tuple[int, ...]) -> tuple[dict[str, Array], PyTree]:
        key_parameters, key_levels = jax.random.split(key)
        uniform = draw.uniform(key_parameters, (*shape, len(ends)))
        drawn = {each: low[i] + uniform[..., i] * (high[i] - low[i]) for i, each in enumerate(ends)}
        return drawn, plain.levels(key_levels, shape)

    def begin(level: tuple[dict[str, Array], PyTree]) -> tuple[Randomised, PyTree]:
        inner, obs = make(**level[0]).begin(level[1])
        return Randomised(inner, level[0]), obs

    def step(noise: PyTree, env_state: Randomised, action: Array) -> tuple[Randomised, Step]:
        inner, step = make(**env_state.parameters).step(noise, env_state.inner, action)
        return env_state._replace(inner=inner), step

    def change(key: Key, level: tuple[dict[str, Array], PyTree]) -> tuple[dict[str, Array], PyTree]:
        key_which, key_by, key_inner = jax.random.split(key, 3)
        moved = jnp.where(jnp.arange(len(ends)) == jax.random.randint(key_which, (), 0, len(ends)), REACH, 0.0)
        by = jax.random.uniform(key_by, (), minval=-1.0, maxval=1.0) * moved * (high - low)
        parameters = {each: jnp.clip(level[0][each] + by[i], low[i], high[i]) for i, each in enumerate(ends)}
        return parameters, plain.design.change(key_inner, level[1]) if plain.design else level[1]

    def build(key: Key, choices: Array) -> tuple[dict[str, Array], PyTree]:
        own, inner = choices[: len(ends)], choices[len(ends) :]
        parameters = {each: low[i] + (own[i] + 0.5) / PARTS * (high[i] - low[i]) for i, each in enumerate(ends)}
        return parameters, plain.design.build(key, inner) if plain.design else plain.levels(key, ())

    sizes = (PARTS,) * len(ends) + (plain.design.sizes if plain.design else ())
    held = plain._replace(hidden=True, keep=kept(plain), redraw=chance.within(plain.redraw))
    return held._replace(
        design=Design(change, sizes, build, plain.design.solved if plain.design else None),
        levels=levels,
        begin=begin,
        step=step,
        observation_space=spaces.tree_map(_hull, *[env.observation_space for env in corners]),
        action_space=spaces.tree_map(_hull, *[env.action_space for env in corners]),
    )


def _check_traced(field: str, make: Callable[..., Env], parameter: str, others: dict[str, float], pair: Any) -> None:
    """Checks that the environment can be made with a traced ``parameter``, and draws levels and noise without it.

    It raises `ConfigError`, which begins with ``field``, otherwise. ``make`` is mapped over the ``pair`` of the
    parameter's values; levels and noise must not become mapped.
    """
    key = jax.random.key(0)
    made = lambda x: make(**{parameter: x}, **others)
    try:
        jax.eval_shape(lambda x: made(x).reset(key), pair[0])
    except Exception as error:
        raise ConfigError(f"{field}: cannot be drawn ({type(error).__name__} when it is traced)") from None
    for drawn in ("levels", "noise"):
        try:
            jax.eval_shape(jax.vmap(lambda x, drawn=drawn: getattr(made(x), drawn)(key, ()), out_axes=None), pair)
        except ValueError:
            raise ConfigError(f"{field}: {drawn} depend on it, but must be drawn for all values alike") from None


def _hull(leaf: Any, *others: Any) -> Leaf:
    """Returns the smallest leaf that holds all of these, which differ in the bounds of a `Box` at most."""
    if not isinstance(leaf, Box):
        return leaf
    lows, highs = zip(*((other.low, other.high) for other in (leaf, *others)), strict=True)
    low = functools.reduce(spaces.array_namespace(*lows).minimum, lows)
    return leaf._replace(low=low, high=functools.reduce(spaces.array_namespace(*highs).maximum, highs))
