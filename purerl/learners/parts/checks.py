"""Checks of configs that several algorithms share. The fields of the configs are valid (`config.problems`)."""

import math

import jax.numpy as jnp

from purerl import spaces
from purerl.config import known
from purerl.learners.parts.settings import Minibatches, OnPolicy, SequenceMinibatches
from purerl.types import Env


def iteration_problems(config: OnPolicy) -> list[str]:
    """Returns the reasons why an on-policy config has no countable iterations, a line each.

    It has less than one, or an iteration has too many steps for int32.
    """
    problems = []
    if config.batch_size >= 2**31:
        problems.append(f"num_envs * num_steps = {config.batch_size}: must be below {2**31}")
    if known(config.total_steps) and config.total_steps < config.iteration_frames:
        twice = "2 * " if config.iteration_frames > config.batch_size else ""
        problems.append(
            f"total_steps = {config.total_steps}: must be at least one iteration, {twice}num_envs * num_steps = "
            f"{config.iteration_frames}"
        )
    return problems


def minibatch_problems(config: Minibatches, sequence_length: int = 1) -> list[str]:
    """Returns one line if ``config.num_minibatches`` does not divide a batch.

    Args:
        config: Settings.
        sequence_length: Steps of a sequence; if it is above 1, the batch is divided into sequences.
    """
    size = config.batch_size // sequence_length
    if size >= 2**31 or size % config.num_minibatches == 0:
        return []
    what = "num_envs * num_steps"
    if sequence_length > 1:
        what = f"the number of sequences, {what} / {sequence_length}"
    small = [d for d in range(1, math.isqrt(size) + 1) if size % d == 0]
    divisors = small + [size // d for d in small]
    below = max(d for d in divisors if d < config.num_minibatches)
    above = min((d for d in divisors if d > config.num_minibatches), default=below)
    nearest = ", ".join(map(str, sorted({below, above})))
    return [f"num_minibatches = {config.num_minibatches}: must divide {what} = {size}; nearest valid: {nearest}"]


def sequence_problems(config: SequenceMinibatches, remembers: bool) -> list[str]:
    """Returns the reasons why a batch cannot be cut into minibatches, a line each.

    Args:
        config: Settings.
        remembers: Whether the network has a memory, and learns from sequences.
    """
    if not remembers:
        return minibatch_problems(config)
    if config.num_steps % config.sequence_steps:
        return [f"sequence_length = {config.sequence_length}: must divide num_steps = {config.num_steps}"]
    return minibatch_problems(config, config.sequence_steps)


def space_problems(env: Env | None, kinds: tuple[type, ...] = ()) -> list[str]:
    """Returns the reasons why an algorithm cannot act in an environment, a line each.

    Args:
        env: The environment; None: not known.
        kinds: Types of action spaces that the algorithm can act in, where a Box is one of floats. Empty: all, Boxes of
            integers and trees of spaces, too.
    """
    if env is None:
        return []
    space = env.action_space
    problems = spaces.problems("observation_space", env.observation_space) + spaces.problems("action_space", space)
    problems = problems or ([] if kinds else spaces.choice_problems("action_space", space))
    if problems:
        return [f"env = {env.name!r}: {line}" for line in problems]
    if not kinds:
        return []
    if spaces.is_whole(space) and spaces.Box in kinds:
        return [f"env = {env.name!r}: has Box actions of {jnp.dtype(space.dtype)}; must be floats"]
    if isinstance(space, kinds):
        return []
    names = " or ".join(kind.__name__ for kind in kinds)
    return [f"env = {env.name!r}: has {spaces.kind(space)} actions; the algorithm needs {names}"]


def bounded_space_problems(env: Env | None, kinds: tuple[type, ...]) -> list[str]:
    """Returns `space_problems`; or one line for actions of a Box that is not bounded."""
    problems = space_problems(env, kinds)
    if problems or env is None or not isinstance(env.action_space, spaces.Box) or spaces.is_bounded(env.action_space):
        return problems
    return [f"env = {env.name!r}: has actions without bounds; the algorithm needs a bounded Box"]
