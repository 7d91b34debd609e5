"""Training in levels that a curriculum chooses: each iteration begins anew in the levels of a plan."""

import zlib
from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl.curricula.buffer import Buffer
from purerl.curricula.curriculum import Curriculum, Plan
from purerl.envs import resets, seats
from purerl.envs.fleet import Fleet, fleet
from purerl.formulas import levels as formulas
from purerl.formulas.levels import Played
from purerl.loops.rollout import init_actors, rollout
from purerl.loops.trainers import initial_state, next_state, observe
from purerl.types import (
    Actors,
    Array,
    Env,
    Key,
    Learner,
    Metrics,
    PyTree,
    Scores,
    Trainer,
    TrainState,
    Transition,
    Updated,
)

PLAN, PROBE, TEACH = (zlib.crc32(name) for name in (b"planning", b"probing", b"teaching"))
"""Separate the keys of choosing levels, of playing to score them and of a teacher from those of learning."""
Collected = tuple[Actors, Transition, Metrics]


class Lesson(NamedTuple):
    """A trajectory ``[T, B]``, and the plan in whose levels it began."""

    trajectory: Transition
    plan: Plan


def play(
    key: Key, env: Env, learner: Learner, behaviour: PyTree, levels: PyTree, num_envs: int, num_steps: int
) -> Collected:
    """Acts for ``num_steps`` steps from the beginning of ``levels``, as `rollout` does.

    Where an episode ends its level begins again.

    Args:
        key: Consumed.
        env: The environment.
        learner: The learner.
        behaviour: ``learner.behaviour(state)``.
        levels: ``[num_envs, ...]``.
        num_envs: The number of environments.
        num_steps: The number of steps.
    """
    rows = fleet(env, num_envs, resets.again(seats.seated(env), levels))
    return rollout(key, rows, learner, behaviour, init_actors(key, rows, learner), num_steps)


def results_by_level(env: Env, trajectory: Transition, scores: Scores | None = None) -> Played:
    """Summarises the results of a trajectory in each of its ``E`` levels; with several agents, their mean.

    ``scores`` are the learner's values and advantages; with None they count as zeros.
    """
    nothing = jnp.zeros_like(trajectory.reward)
    value, advantage = scores or (nothing, nothing)
    limit = env.design.solved if env.design else None
    of_rows = formulas.played(trajectory.reward, trajectory.last, value, advantage, limit)
    of_levels = lambda x: jnp.mean(x.reshape(-1, env.num_agents), axis=1)
    means: Played = jax.tree.map(of_levels, of_rows._replace(finished=of_rows.finished.astype(jnp.float32)))
    return means._replace(finished=means.finished > 0)


def curriculum_trainer(rows: Fleet, env: Env, learner: Learner, curriculum: Curriculum, *, num_steps: int) -> Trainer:
    """Makes a training in levels that ``curriculum`` plans.

    An iteration plays ``[T = num_steps, B = rows.size]`` in the levels of a plan and learns from it; with
    ``replays_alone`` it learns only if the plan is ``replayed``. If the curriculum has a ``probe``, the iteration then
    plays as many steps again in the levels that are to be scored.

    Metrics also have ``levels`` and ``level_score``, the number and the mean score of the levels in the buffer,
    ``replayed``, whether the plan took its levels from there, ``unfinished``, the fraction of levels in which no
    episode ended, and, if the environment's design says when an episode is solved, ``solve_rate``, the fraction of
    episodes that were.

    Args:
        rows: The fleet of ``env``.
        env: The environment.
        learner: The learner.
        curriculum: The choice of levels.
        num_steps: The number of steps ``T``.
    """
    num_envs = rows.env_steps

    def init(key: Key) -> TrainState:
        key, key_actors, key_learner, key_levels = jax.random.split(key, 4)
        actors = init_actors(key_actors, rows, learner)
        state = initial_state(learner.init(key_learner, actors.obs), actors, (), key)
        return state._replace(curriculum=curriculum.init(key_levels))

    def collect(given: PyTree, actors: Actors, key: Key) -> tuple[Actors, Lesson, Metrics]:
        behaviour, state = given
        plan = curriculum.plan(state, jax.random.fold_in(key, PLAN))
        actors, trajectory, metrics = play(key, env, learner, behaviour, plan.levels, num_envs, num_steps)
        return actors, Lesson(trajectory, plan), metrics

    def learn(state: TrainState, lesson: Lesson, key: Key) -> tuple[TrainState, Metrics]:
        plan, key_probe = lesson.plan, jax.random.fold_in(key, PROBE)
        observed, trajectory, more = observe(learner, state.learner, lesson.trajectory, key)
        update = lambda: learner.update(observed, trajectory, key)
        if curriculum.replays_alone:
            updated = jax.lax.cond(plan.replayed, update, lambda: unlearned(state.learner, update()))
            loss = jnp.where(plan.replayed, updated.metrics["loss"], 0.0)
        else:
            updated = update()
            loss = updated.metrics["loss"]
        played = results_by_level(env, trajectory, updated.scores)
        following = curriculum.update(state.curriculum, plan, played)
        if curriculum.probe and curriculum.probed:
            levels = curriculum.probe(following, plan, jax.random.fold_in(key_probe, PLAN))
            behaviour = learner.behaviour(updated.state)
            _, tried, _ = play(key_probe, env, learner, behaviour, levels, num_envs, num_steps)
            scores = learner.update(updated.state, tried, jax.random.fold_in(key_probe, TEACH)).scores
            following = curriculum.probed(following, levels, results_by_level(env, tried, scores))
        metrics = {
            **updated.metrics,
            **more,
            **buffer_metrics(following.buffer),
            "replayed": plan.replayed.astype(jnp.float32),
            "unfinished": 1 - jnp.mean(played.finished.astype(jnp.float32)),
        }
        if env.design and env.design.solved is not None:
            metrics["solve_rate"] = solve_rate(played)
        state, metrics = next_state(state, updated.state, (), metrics, trajectory, loss)
        return state._replace(curriculum=following), metrics

    return Trainer(
        init,
        collect,
        learn,
        learner,
        rows,
        num_steps,
        acts_by=lambda state: (learner.behaviour(state.learner), state.curriculum),
        scored_steps=num_steps if curriculum.probe else 0,
    )


def unlearned(before: PyTree, updated: Updated) -> Updated:
    """Returns an update that leaves the learner as ``before``.

    Every metric is nan, or 0 if it is an integer; the scores of ``updated`` are kept.
    """
    none = lambda x: jnp.full_like(x, jnp.nan if jnp.issubdtype(x.dtype, jnp.inexact) else 0)
    return Updated(before, jax.tree.map(none, updated.metrics), updated.scores)


def solve_rate(played: Played) -> Array:
    """Computes the fraction of episodes that were solved, mean over the levels in which one ended; nan if none did."""
    return jnp.sum(jnp.where(played.finished, played.solved, 0.0)) / jnp.sum(played.finished)


def buffer_metrics(buffer: Buffer) -> Metrics:
    """Computes the metrics of a buffer: the number of its levels and their mean score."""
    score = jnp.sum(jnp.where(buffer.occupied, buffer.score, 0.0)) / buffer.size
    return {"levels": buffer.size.astype(jnp.float32), "level_score": score}
