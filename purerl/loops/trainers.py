"""The training loops: each makes a `Trainer` of an environment and a learner; `train` and `chunk` run one."""

import functools
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from purerl import counters, kernels, trees
from purerl.envs.fleet import Fleet
from purerl.loops.rollout import init_actors, rollout
from purerl.types import (
    Actors,
    Array,
    Key,
    Learner,
    Metrics,
    PyTree,
    Replay,
    Result,
    Trainer,
    TrainState,
    Transition,
)


def on_policy(fleet: Fleet, learner: Learner, *, num_steps: int) -> Trainer:
    """An iteration collects ``[T = num_steps, B = fleet.size]`` under the current policy and learns from it at once."""

    def init(key: Key) -> TrainState:
        key, key_actors, key_learner = jax.random.split(key, 3)
        actors = init_actors(key_actors, fleet, learner)
        learned = learner.init(key_learner, actors.obs)
        return TrainState(learned, actors, (), counters.of(), jnp.ones((), bool), key)

    def step(state: TrainState) -> tuple[TrainState, Metrics]:
        key, key_rollout, key_update = jax.random.split(state.key, 3)
        actors, trajectory, episodes = rollout(key_rollout, fleet, learner, state.learner, state.actors, num_steps)
        learned, metrics = learner.update(state.learner, trajectory, key_update)
        alive, learned = survive(state, learned, metrics["loss"])
        state = TrainState(learned, actors, (), counters.increment(state.iteration), alive, key)
        return state, {**episodes, **metrics, "alive": alive}

    return Trainer(init, step, learner, fleet.env_steps * num_steps)


def off_policy(
    fleet: Fleet, learner: Learner, replay: Replay, *, num_steps: int, num_updates: int, warmup: int
) -> Trainer:
    """An iteration adds ``[T = num_steps, B = fleet.size]`` under the current policy to ``replay`` and learns from it.

    It learns by ``num_updates`` updates, each from a sample of its own, and tells the replay the priorities that come
    of it; the metrics are averaged. ``init`` collects the first ``warmup`` rows, a multiple of ``num_steps`` and enough
    to draw a sample, with the initial policy; episodes that end there are in no metric. Raises `ValueError` for another
    ``warmup``.
    """
    if warmup % num_steps or warmup < replay.rows:
        raise ValueError(
            f"warmup = {warmup}: must be a multiple of num_steps = {num_steps}, and at least a sample's {replay.rows}"
        )

    def act(key: Key, learned: PyTree, actors: Actors) -> tuple[Actors, Transition, Metrics]:
        return rollout(key, fleet, learner, learned, actors, num_steps)

    def init(key: Key) -> TrainState:
        key, key_actors, key_learner, key_warmup = jax.random.split(key, 4)
        actors = init_actors(key_actors, fleet, learner)
        learned = learner.init(key_learner, actors.obs)
        _, trajectory, _ = jax.eval_shape(act, key_warmup, learned, actors)
        item = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[2:], x.dtype), trajectory)

        def fill(state, key):
            actors, stored = state
            actors, trajectory, _ = act(key, learned, actors)
            return (actors, replay.add(stored, trajectory)), None

        keys = jax.random.split(key_warmup, warmup // num_steps)
        with jax.named_scope("warm-up"):
            (actors, stored), _ = jax.lax.scan(fill, (actors, replay.init(item)), keys)
        return TrainState(learned, actors, stored, counters.of(), jnp.ones((), bool), key)

    def step(state: TrainState) -> tuple[TrainState, Metrics]:
        key, key_rollout, key_updates = jax.random.split(state.key, 3)
        actors, trajectory, episodes = act(key_rollout, state.learner, state.actors)
        stored = replay.add(state.replay, trajectory)

        def learn(state, keys):
            learned, stored = state
            key_sample, key_update = keys
            sample = replay.sample(stored, key_sample)
            learned, priority, metrics = learner.update(learned, sample, key_update)
            return (learned, replay.update(stored, sample, priority)), metrics

        keys = tuple(jax.random.split(key_updates, (2, num_updates)))
        (learned, stored), metrics = trees.scan_means(learn, (state.learner, stored), keys)
        alive, learned = survive(state, learned, metrics["loss"])
        state = TrainState(learned, actors, stored, counters.increment(state.iteration), alive, key)
        return state, {**episodes, **metrics, "alive": alive}

    return Trainer(init, step, learner, fleet.env_steps * num_steps, fleet.env_steps * warmup)


def survive(state: TrainState, learned: PyTree, loss: Array) -> tuple[Array, PyTree]:
    """Whether a training is still alive after an iteration, and its learner: ``learned``, or frozen as it was before.

    It dies for good when the loss or any float of the learner is not finite. The choice touches the learner alone, so
    that no replay buffer is copied.
    """

    def choose(before: PyTree, learned: PyTree, alive: Array, loss: Array) -> tuple[PyTree, Array]:
        floats = [x for x in jax.tree.leaves(learned) if jnp.issubdtype(x.dtype, jnp.inexact)]
        alive = functools.reduce(jnp.logical_and, (jnp.all(jnp.isfinite(x)) for x in [loss, *floats]), alive)
        return jax.tree.map(lambda new, old: jnp.where(alive, new, old), learned, before), alive

    learned, alive = kernels.fuse(choose, "survive", samples=False)(state.learner, learned, state.alive, loss)
    return alive, learned


def train(trainer: Trainer, num_iterations: int) -> Callable[[Key], Result]:
    """The whole training as one function ``train(key) -> Result(state, metrics [num_iterations])``, to jit and vmap."""

    def run(key: Key) -> Result:
        start = trainer.init(key)
        with jax.named_scope("iterations"):
            state, metrics = jax.lax.scan(lambda s, _: trainer.step(s), start, None, num_iterations)
        return Result(state, metrics)

    return run


class Steps(Protocol):
    """A `Trainer`, or anything else whose ``step(state) -> (state, metrics)`` goes on with it."""

    @property
    def step(self) -> Callable[[Any], tuple[Any, Metrics]]: ...


def chunk(trainer: Steps, capacity: int) -> Callable[[PyTree, Array], tuple[PyTree, Metrics]]:
    """``chunk(state, length) -> (state, metrics [capacity])``: ``length <= capacity`` iterations of a training.

    One compiled program serves every length; metrics beyond it are zeros.
    """

    step = jax.jit(trainer.step, inline=True)  # traced once for its shapes and for the loop

    def run(state: PyTree, length: Array) -> tuple[PyTree, Metrics]:
        shapes = jax.eval_shape(step, state)[1]
        rows = jax.tree.map(lambda m: jnp.zeros((capacity, *m.shape), m.dtype), shapes)

        def one(i, carry):
            state, rows = carry
            state, metrics = step(state)
            return state, jax.tree.map(lambda r, m: r.at[i].set(m), rows, metrics)

        with jax.named_scope("iterations"):
            return jax.lax.fori_loop(0, length, one, (state, rows))

    return run
