"""Levels that a teacher builds, choice by choice."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from purerl import draw
from purerl.envs.episodic import box, episodic
from purerl.spaces import Discrete
from purerl.types import Array, Design, Env, Key, PyTree

BUILDING = "building"
"""The name of the environments in which levels are built."""
NOISE = 16
"""The number of random numbers in a teacher's observation, by which it can build different levels."""


class Building(NamedTuple):
    """A level that is being built.

    ``choices`` (int32 ``[G]``) are those made so far, -1 for those to come; ``made`` (int32) is their number; ``noise``
    is what the teacher observes of chance.
    """

    choices: Array
    made: Array
    noise: Array


def builder(design: Design) -> Env:
    """Makes an environment in which a level of ``design`` is built, in an episode of ``G`` steps without rewards.

    Each action is a choice. There are as many actions as the largest of the design's sizes; a choice of a smaller size
    takes the action modulo its size. Observations hold each choice as a fraction, which choice is next, for each size
    how often each of its values was chosen, and noise.
    """
    sizes = np.array(design.sizes, np.int32)
    number, kinds = len(sizes), sorted(set(design.sizes))

    def dynamics(now: Building, action: Array) -> tuple[Building, Array, Array]:
        at = jnp.minimum(now.made, number - 1)
        choices = now.choices.at[at].set(jnp.remainder(jnp.asarray(action, jnp.int32), jnp.asarray(sizes)[at]))
        return Building(choices, now.made + 1, now.noise), jnp.zeros(()), now.made + 1 >= number

    def observe(now: Building) -> Array:
        made = now.choices >= 0
        counted = [
            jnp.sum(jax.nn.one_hot(jnp.where(made & (sizes == kind), now.choices, -1), kind), axis=0) for kind in kinds
        ]
        fraction = jnp.where(made, (now.choices + 1) / sizes, 0.0)
        return jnp.concatenate([fraction, jax.nn.one_hot(now.made, number), *counted, now.noise])

    high = [*[1.0] * 2 * number, *itertools.chain(*([float(np.sum(sizes == kind))] * kind for kind in kinds))]
    return episodic(
        BUILDING,
        levels=lambda key, shape: draw.uniform(key, (*shape, NOISE)),
        initial=lambda noise: Building(jnp.full(number, -1, jnp.int32), jnp.zeros((), jnp.int32), noise),
        dynamics=dynamics,
        observe=observe,
        time_limit=number + 1,
        observation_space=box([0.0] * (len(high) + NOISE), [*high, *[1.0] * NOISE]),
        action_space=Discrete(int(sizes.max())),
    )


def built(design: Design) -> Callable[[Key, Array], PyTree]:
    """Makes ``(key, actions [G, E]) -> levels [E, ...]``: the levels that episodes of the `builder` have built.

    It consumes the key.
    """

    def levels(key: Key, actions: Array) -> PyTree:
        choices = jnp.remainder(actions.astype(jnp.int32), jnp.array(design.sizes, jnp.int32)[:, None])
        return jax.vmap(design.build)(jax.random.split(key, actions.shape[1]), choices.T)

    return levels
