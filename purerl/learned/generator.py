"""Generators of levels: small networks, evolved over whole trainings of the agents that learn in their levels.

A level is built by choices (`types.Design`). The network maps random numbers to two outputs for each choice. A uniform
number for each choice is transformed by them before the choice is made: one output shifts its logit, the other scales
it. So the levels of a generator differ, and a network whose outputs are zeros makes uniform choices.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl import draw, trees
from purerl.errors import ConfigError
from purerl.learned import socket_settings
from purerl.learned.networks import mlp
from purerl.learned.socket_settings import Size
from purerl.types import Array, Env, Key, PyTree

EDGE = 1e-6
"""The least distance of uniform numbers from 0 and 1, so that their logits are finite."""
STEEPEST = 4.0
"""The largest magnitude of the exponent of the factor on a logit, which lies in ``[exp(-4), exp(4)]``."""


@dataclasses.dataclass(frozen=True)
class GeneratorSettings:
    """How levels are generated."""

    generator_noise: Size = 4
    """Number of random inputs of the network that generates levels, besides those of its single choices."""
    generator_layers: tuple[Size, ...] = (16,)
    """Widths of the hidden layers of the network that generates levels."""


@dataclasses.dataclass(frozen=True)
class Made(GeneratorSettings):
    """Settings with what the environment adds: how many values each choice has."""

    sizes: tuple[Size, ...] = (1,)


class Generator(NamedTuple):
    """The functions of a generator: ``init(key)`` makes meta-parameters, ``env(meta_params, env)`` draws its levels.

    With the initial meta-parameters all choices are uniform. ``init`` consumes its key.
    """

    init: Callable[[Key], PyTree]
    env: Callable[[PyTree, Env], Env]


def read(fields: dict) -> Made:
    """Reads settings from JSON. Raises `ConfigError`, a line for each that is not valid."""
    made = socket_settings.read(Made, "levels", "generator_layers", fields)
    if len(made.sizes) > socket_settings.MOST:
        raise ConfigError(f"sizes: must be at most {socket_settings.MOST}")
    return made


def settings(options: object, env: Env) -> dict:
    """Returns the settings among ``options``, with what ``env`` adds, as JSON.

    Raises:
        ConfigError: A setting is not valid, or the levels of ``env`` are not made of choices.
    """
    if env.design is None:
        raise ConfigError(f"env = {env.name!r}: has no levels to choose from")
    given = {field.name: getattr(options, field.name) for field in dataclasses.fields(GeneratorSettings)}
    return socket_settings.as_json(read({**given, "sizes": list(env.design.sizes)}))


def make(made: Made) -> Generator:
    """Makes the functions of a generator with the settings ``made``."""
    count = len(made.sizes)
    network = mlp(made.generator_noise, made.generator_layers, 2 * count)

    def choices(meta_params: PyTree, numbers: Array) -> Array:
        """Maps uniform numbers in [0, 1) ``[..., generator_noise + G]`` to choices, int32 ``[..., G]``."""
        noise, each = 2 * numbers[..., : made.generator_noise] - 1, numbers[..., made.generator_noise :]
        outputs = network.apply(meta_params, *(noise[..., i] for i in range(made.generator_noise)))
        moved, steep = jnp.stack(outputs[:count], axis=-1), jnp.stack(outputs[count:], axis=-1)
        logits = jax.scipy.special.logit(jnp.clip(each, EDGE, 1 - EDGE))
        places = jax.nn.sigmoid(logits * jnp.exp(jnp.clip(steep, -STEEPEST, STEEPEST)) + moved)
        sizes = jnp.array(made.sizes, jnp.int32).reshape(*[1] * (places.ndim - 1), -1)
        return jnp.clip((places * sizes).astype(jnp.int32), 0, sizes - 1)

    def env(meta_params: PyTree, env: Env) -> Env:
        if env.design is None or env.design.sizes != made.sizes:
            raise ConfigError(f"env = {env.name!r}: its levels have other choices than those that the generator builds")
        build = env.design.build

        def levels(key: Key, shape: tuple[int, ...]) -> PyTree:
            key_choices, key_build = jax.random.split(key)
            number = math.prod(shape)
            made_of = choices(meta_params, draw.uniform(key_choices, (number, made.generator_noise + count)))
            return trees.split(jax.vmap(build)(jax.random.split(key_build, number), made_of), shape)

        return env._replace(levels=levels)

    return Generator(network.init, env)
