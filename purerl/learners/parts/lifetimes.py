"""Parts of an algorithm that depend on where in its training an agent is (Jackson et al. 2024, arXiv 2402.05828)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from purerl import counters
from purerl.types import Array, Scalar

Age = counters.Count | tuple[()]
"""The number of iterations in which an agent has learned; () where nothing reads it."""


class Lifetime(NamedTuple):
    """How far a training has got, and how long it is; both are float32 scalars.

    ``passed`` rises from 0 in the first iteration to 1 in the last, and ``length`` is the natural logarithm of the
    frames of the training.
    """

    passed: Array
    length: Array


class Timed(NamedTuple):
    """A part that depends on the agent's `Lifetime`, such as an objective or an estimate.

    ``at(lifetime)`` returns the part.
    """

    at: Callable[[Lifetime], Any]


def begin(*parts: Any) -> Age:
    """Returns the age of a new agent: a count if any of ``parts`` is `Timed`."""
    return counters.of() if any(isinstance(part, Timed) for part in parts) else ()


def older(age: Age) -> Age:
    """Returns the age an iteration later."""
    return counters.increment(age) if age else ()


def now(part: Any, config: Any, age: Age) -> Any:
    """Returns ``part`` for an agent of this age; a part that is not `Timed` is returned as it is."""
    if not isinstance(part, Timed):
        return part
    assert age, "a part depends on the age of an agent, and the family has none"
    return then(part, config, passed(config, age))


def then(part: Any, config: Any, passed: Scalar) -> Any:
    """Returns ``part`` when this fraction of the training has passed; one that is not `Timed` is returned as it is."""
    if not isinstance(part, Timed):
        return part
    return part.at(Lifetime(jnp.float32(passed), jnp.log(jnp.float32(config.total_steps))))


def passed(config: Any, iterations: counters.Count) -> Array:
    """Returns the fraction of the training, from 0 in the first iteration to 1 in the last, after ``iterations``."""
    return counters.real(iterations) / jnp.maximum(jnp.float32(config.num_iterations) - 1, 1)
