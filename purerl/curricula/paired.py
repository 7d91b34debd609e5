"""PAIRED: a teacher builds the levels in which two agents play; its reward is the difference of their returns."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from purerl.curricula.teacher import builder, built
from purerl.curricula.training import PROBE, TEACH, play, results_by_level, solve_rate
from purerl.envs.fleet import Fleet, fleet
from purerl.formulas import levels as formulas
from purerl.loops.rollout import init_actors, rollout
from purerl.loops.trainers import initial_state, next_state, observe
from purerl.types import Actors, Design, Env, Key, Learner, Metrics, PyTree, Trainer, TrainState, Transition


class Others(NamedTuple):
    """The states of the antagonist and of the teacher. The protagonist is the learner of the training."""

    antagonist: PyTree
    teacher: PyTree


class Lesson(NamedTuple):
    """Trajectories ``[T, B]`` of the two agents in the same levels, and ``[G, E]`` of the teacher, which built them."""

    protagonist: Transition
    antagonist: Transition
    teacher: Transition


def paired_trainer(
    rows: Fleet, env: Env, learner: Learner, teacher: Learner, design: Design, *, num_steps: int
) -> Trainer:
    """Makes a training by protagonist-antagonist induced regret environment design.

    Dennis et al. 2020, arXiv 2012.02096, algorithm 1. In an iteration ``teacher``, a learner in the `curricula.builder`
    of ``design``, builds a level for each of the environments of ``rows``; a protagonist and an antagonist, which are
    two states of ``learner``, play there ``[T = num_steps, B = rows.size]`` each; all three learn. The teacher's reward
    comes at its last choice. It is the antagonist's best return less the protagonist's mean, at least 0
    (`formulas.levels.regret`). The protagonist is what is evaluated and saved.

    Metrics are the protagonist's, and ``regret``, ``antagonist_return``, ``antagonist_loss``, ``teacher_loss`` and, if
    ``design`` says when an episode is solved, ``solve_rate``.

    Args:
        rows: The fleet of ``env``.
        env: The environment.
        learner: The learner of the protagonist and of the antagonist.
        teacher: The learner that builds levels.
        design: How levels are built.
        num_steps: The number of steps ``T`` of an iteration.
    """
    num_envs, building, levels_of = rows.env_steps, builder(design), built(design)
    site, num_choices = fleet(building, num_envs), len(design.sizes)

    def init(key: Key) -> TrainState:
        key, key_actors, key_learner, key_other, key_teacher = jax.random.split(key, 5)
        actors = init_actors(key_actors, rows, learner)
        plan = init_actors(jax.random.fold_in(key_actors, TEACH), site, teacher)
        others = Others(learner.init(key_other, actors.obs), teacher.init(key_teacher, plan.obs))
        return initial_state(learner.init(key_learner, actors.obs), actors, (), key)._replace(curriculum=others)

    def acts_by(state: TrainState) -> tuple[PyTree, PyTree, PyTree]:
        others = state.curriculum
        return (
            learner.behaviour(state.learner),
            learner.behaviour(others.antagonist),
            teacher.behaviour(others.teacher),
        )

    def collect(given: tuple[PyTree, PyTree, PyTree], actors: Actors, key: Key) -> tuple[Actors, Lesson, Metrics]:
        key_first, key_build, key_levels, key_other = jax.random.split(jax.random.fold_in(key, TEACH), 4)
        begun = init_actors(key_first, site, teacher)
        _, taught, _ = rollout(key_build, site, teacher, given[2], begun, num_choices)
        levels = levels_of(key_levels, taught.action)
        actors, ours, metrics = play(key, env, learner, given[0], levels, num_envs, num_steps)
        _, theirs, others = play(key_other, env, learner, given[1], levels, num_envs, num_steps)
        return actors, Lesson(ours, theirs, taught), {**metrics, "antagonist_return": others["episode_return"]}

    def learn(state: TrainState, lesson: Lesson, key: Key) -> tuple[TrainState, Metrics]:
        others: Others = state.curriculum
        key_other, key_teacher = jax.random.fold_in(key, PROBE), jax.random.fold_in(key, TEACH)
        ours, theirs = results_by_level(env, lesson.protagonist), results_by_level(env, lesson.antagonist)
        regret = formulas.regret(theirs, ours)
        pay = jnp.zeros_like(lesson.teacher.reward).at[-1].set(regret)
        updated, more = _learned(learner, state.learner, lesson.protagonist, key)
        other, metrics_of_other = _learned(learner, others.antagonist, lesson.antagonist, key_other)
        taught, metrics_of_teacher = _learned(teacher, others.teacher, lesson.teacher._replace(reward=pay), key_teacher)
        metrics = {
            **more,
            "regret": jnp.mean(regret),
            "antagonist_loss": metrics_of_other["loss"],
            "teacher_loss": metrics_of_teacher["loss"],
        }
        if design.solved is not None:
            metrics["solve_rate"] = solve_rate(ours)
        losses = metrics["loss"] + metrics["antagonist_loss"] + metrics["teacher_loss"]
        whole = state._replace(learner=(state.learner, others))
        state, metrics = next_state(whole, (updated, Others(other, taught)), (), metrics, lesson.protagonist, losses)
        return state._replace(learner=state.learner[0], curriculum=state.learner[1]), metrics

    return Trainer(init, collect, learn, learner, rows, num_steps, acts_by=acts_by, scored_steps=num_steps)


def _learned(learner: Learner, state: PyTree, trajectory: Transition, key: Key) -> tuple[PyTree, Metrics]:
    """Computes a learner's state after a trajectory, and its metrics. Consumes ``key``."""
    observed, trajectory, more = observe(learner, state, trajectory, key)
    updated = learner.update(observed, trajectory, key)
    return updated.state, {**updated.metrics, **more}
