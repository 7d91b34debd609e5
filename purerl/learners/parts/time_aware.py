"""Parts of an algorithm that depend on where in its training an agent is (Jackson et al. 2024, arXiv 2402.05828)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from purerl import counters
from purerl.learners.parts.nesting import inside
from purerl.loops.settings import Loop
from purerl.types import Array, Key, Learner, Scalar, Updated


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


class Aging(NamedTuple):
    """The state of a learner with parts that are `Timed`, and the iterations in which it has learned."""

    learner: Any
    iterations: counters.Count


def aging(config: Loop, make: Callable[..., Learner], parts: dict[str, Any]) -> Learner:
    """Makes a learner whose `Timed` parts are, in each update, those of the agent's `Lifetime`.

    Args:
        config: Settings of the algorithm.
        make: ``make(**parts)`` makes the learner.
        parts: Its parts, of which some are `Timed`.
    """

    def at(fraction: Scalar) -> Learner:
        return make(**{name: then(part, config, fraction) for name, part in parts.items()})

    new = at(0.0)

    def update(state: Aging, given: Any, key: Key) -> Updated:
        learned = at(passed(config, state.iterations)).update(state.learner, given, key)
        return learned._replace(state=Aging(learned.state, counters.increment(state.iterations)))

    return inside(new, init=lambda key, obs: Aging(new.init(key, obs), counters.of()), update=update)


def then(part: Any, config: Loop, passed: Scalar) -> Any:
    """Returns ``part`` when this fraction of the training has passed; one that is not `Timed` is returned as it is."""
    if not isinstance(part, Timed):
        return part
    return part.at(Lifetime(jnp.float32(passed), jnp.log(jnp.float32(config.total_steps))))


def passed(config: Loop, iterations: counters.Count) -> Array:
    """Returns the fraction of the training, from 0 in the first iteration to 1 in the last, after ``iterations``."""
    return counters.real(iterations) / jnp.maximum(jnp.float32(config.num_iterations) - 1, 1)
