"""An iteration in environments of the host, cut where the host steps: the halves of `rollout` for a group of rows.

`purerl.population.hosting` runs them. All functions are for one agent and ``B`` rows, which may be a part of the
fleet's.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from purerl import trees
from purerl.envs import seats
from purerl.envs.fleet import fleet
from purerl.loops.rollout import episode_metrics, transition
from purerl.types import (
    Actors,
    Array,
    Env,
    Key,
    Learner,
    Metrics,
    PyTree,
    Situation,
    Step,
    Trainer,
    TrainState,
    Transition,
)


class Lane(NamedTuple):
    """``B`` rows between two steps.

    ``env_state`` are the states of the transforms around the host's environments, ``obs`` are the observations that the
    policy is given, and ``carry`` is what it remembers.
    """

    env_state: PyTree
    obs: PyTree
    carry: PyTree


class Choice(NamedTuple):
    """The choices of a policy in a `Lane`.

    ``action`` ``[B, ...]``, the ``carry`` after it, and the ``extras`` that are recorded.
    """

    action: Array
    carry: PyTree
    extras: PyTree


class StepResult(NamedTuple):
    """The results of a step of the host, with leaves ``[E, ...]`` of ``E`` environments.

    ``step`` is the `Step` of the plain environments. ``first`` are the observations with which their next step begins:
    the first of a new episode where one ended.
    """

    step: Step
    first: PyTree


def arrive(env: Env, init_carry: Callable[[int], PyTree], first: PyTree) -> Lane:
    """Begins episodes in ``env`` with the plain environments' first observations ``[E, ...]``."""
    env_state, obs = jax.vmap(seats.seated(env).begin)(first)
    obs = trees.merge(obs, 2) if env.num_agents > 1 else obs
    return Lane(env_state, obs, init_carry(trees.length(obs)))


def choose(learner: Learner, behaviour: PyTree, lane: Lane, noise: PyTree) -> Choice:
    """Acts by ``behaviour``; ``noise`` is one element of what `Learner.noise` drew."""
    return Choice(*learner.explore(behaviour, Situation(lane.obs, lane.carry, lane.env_state), noise))


def go_on(
    env: Env, remember: Callable[[PyTree, Step], PyTree], lane: Lane, choice: Choice, result: StepResult
) -> tuple[Lane, Transition]:
    """Continues the rows of a lane after a step of the host.

    Args:
        env: The environment.
        remember: ``(carry, step) -> carry``, applied after the step.
        lane: The rows before the step.
        choice: What was chosen in them.
        result: The results of the host's step.

    Returns:
        The rows after the step, and the step as a row ``[B]`` of a trajectory.
    """
    rows = fleet(env, trees.length(result.first))
    env_state, following, step = rows.step((result.step, result.first), lane.env_state, choice.action)
    carry = remember(choice.carry, step)
    return Lane(env_state, following, carry), transition(lane.obs, choice.action, step, choice.extras)


def keys(key: Key) -> tuple[Key, Key, Key]:
    """Splits a training's key into its next key and the keys of acting and of learning, as `Trainer.step` does."""
    key, key_collect, key_learn = jax.random.split(key, 3)
    return key, jax.random.split(key_collect)[1], key_learn


def collected(
    env: Env, actors: Actors, lanes: tuple[Lane, ...], rows: tuple[Transition, ...]
) -> tuple[Actors, Transition, Metrics]:
    """Joins lanes and trajectories ``[T, B]`` of groups of ``env``, side by side in this order.

    Returns:
        The result of `Trainer.collect`.
    """
    beside = lambda axis, *parts: parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis)
    trajectory: Transition = jax.tree.map(lambda *x: beside(1, *x), *rows)
    lane: Lane = jax.tree.map(lambda *x: beside(0, *x), *lanes)
    totals = episode_metrics(actors.episode_return, actors.episode_length, trajectory, env)
    return Actors(*lane, *totals[:2]), trajectory, totals[2]


def learn(
    trainer: Trainer, state: TrainState, next_key: Key, key_learn: Key, *groups: Any
) -> tuple[TrainState, Metrics]:
    """Learns as `Trainer.step` does, after ``groups`` have acted.

    Args:
        trainer: The trainer.
        state: The state before the iteration.
        next_key: The next key of the training.
        key_learn: Consumed.
        *groups: The arguments of `collected` after the actors.
    """
    return trainer.after(state, next_key, collected(trainer.fleet.env, state.actors, *groups), key_learn)


def fill(trainer: Trainer, state: TrainState, *groups: Any) -> tuple[TrainState, tuple[()]]:
    """Stores the trajectories of ``groups`` in the warm-up."""
    actors, trajectory, _ = collected(trainer.fleet.env, state.actors, *groups)
    assert trainer.fill is not None
    return trainer.fill(state._replace(actors=actors), trajectory), ()
