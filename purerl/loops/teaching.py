"""Training in levels that a curriculum chooses: each iteration begins anew in the levels of a plan."""

import zlib
from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl.curricula import Buffer, Curriculum, Plan
from purerl.envs import resets
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
"""Set the keys of choosing levels, of playing to score them and of a teacher apart from those of learning."""
Collected = tuple[Actors, Transition, Metrics]


class Lesson(NamedTuple):
    """A trajectory ``[T, B]``, and the plan in whose levels it began."""

    trajectory: Transition
    plan: Plan


def play(
    key: Key, env: Env, learner: Learner, behaviour: PyTree, levels: PyTree, num_envs: int, num_steps: int
) -> Collected:
    """Acts for ``num_steps`` steps, as `rollout` does, from the beginning of the levels ``[num_envs, ...]`` on: where
    an episode ends its level begins again. Consumes ``key``."""
    rows = fleet(env, num_envs, resets.again(env, levels))
    return rollout(key, rows, learner, behaviour, init_actors(key, rows, learner), num_steps)


def came_of(env: Env, trajectory: Transition, scores: Scores | None = None) -> Played:
    """Sums up what came of a trajectory in each of its ``E`` levels, by what the learner thought of it (None: not
    known); of several agents the mean."""
    nothing = jnp.zeros_like(trajectory.reward)
    value, advantage = scores or (nothing, nothing)
    limit = env.design.solved if env.design else None
    of_rows = formulas.played(trajectory.reward, trajectory.last, value, advantage, limit)
    of_levels = lambda x: jnp.mean(x.reshape(-1, env.num_agents), axis=1)
    means: Played = jax.tree.map(of_levels, of_rows._replace(finished=of_rows.finished.astype(jnp.float32)))
    return means._replace(finished=means.finished > 0)


def taught(rows: Fleet, env: Env, learner: Learner, curriculum: Curriculum, *, num_steps: int) -> Trainer:
    """Makes a training whose iteration plays ``[T = num_steps, B = rows.size]`` in the levels of a plan of
    ``curriculum``, learns from it if that is what the plan is for, and plays as many steps more if there are levels to
    be scored.

    ``rows`` are those of ``env``. Metrics have ``levels`` and ``level_score``, the number and the mean score of those
    in the buffer, ``replayed``, whether the plan was of them, ``unfinished``, the share of levels in which no episode
    ended, and ``solve_rate``, the share of episodes that were solved.
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
        told, trajectory, more = observe(learner, state.learner, lesson.trajectory, key)
        update = lambda: learner.update(told, trajectory, key)
        if curriculum.replays_alone:
            updated = jax.lax.cond(plan.replayed, update, lambda: unlearned(state.learner, update()))
            loss = jnp.where(plan.replayed, updated.metrics["loss"], 0.0)
        else:
            updated = update()
            loss = updated.metrics["loss"]
        played = came_of(env, trajectory, updated.scores)
        following = curriculum.update(state.curriculum, plan, played)
        if curriculum.probe and curriculum.probed:
            levels = curriculum.probe(following, plan, jax.random.fold_in(key_probe, PLAN))
            behaviour = learner.behaviour(updated.state)
            _, tried, _ = play(key_probe, env, learner, behaviour, levels, num_envs, num_steps)
            scores = learner.update(updated.state, tried, jax.random.fold_in(key_probe, TEACH)).scores
            following = curriculum.probed(following, levels, came_of(env, tried, scores))
        metrics = {
            **updated.metrics,
            **more,
            **told_of(following.buffer),
            "replayed": plan.replayed.astype(jnp.float32),
            "unfinished": 1 - jnp.mean(played.finished.astype(jnp.float32)),
        }
        if env.design and env.design.solved is not None:
            metrics["solve_rate"] = solve_rate(played)
        state, metrics = next_state(state, updated.state, (), metrics, loss)
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
    """Returns an update that changes nothing: the learner stays as ``before``, no metric exists, and the scores are
    kept."""
    none = lambda x: jnp.full_like(x, jnp.nan if jnp.issubdtype(x.dtype, jnp.inexact) else 0)
    return Updated(before, jax.tree.map(none, updated.metrics), updated.scores)


def solve_rate(played: Played) -> Array:
    """Computes the share of episodes that were solved, mean over the levels in which one ended; nan if none did."""
    return jnp.sum(jnp.where(played.finished, played.solved, 0.0)) / jnp.sum(played.finished)


def told_of(buffer: Buffer) -> Metrics:
    """Tells how many levels a buffer holds, and their mean score."""
    score = jnp.sum(jnp.where(buffer.taken, buffer.score, 0.0)) / buffer.size
    return {"levels": buffer.size.astype(jnp.float32), "level_score": score}
