"""The training loops: each makes a `Trainer` of an environment and a learner; `train` and `chunk` run one."""

import functools
import zlib
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from purerl import counters, shards, spaces, trees
from purerl.envs.fleet import Fleet
from purerl.envs.hosted import on_device
from purerl.errors import ConfigError
from purerl.loops import streaming
from purerl.loops.rollout import init_actors, rollout
from purerl.loops.streaming import Stream
from purerl.types import (
    Actors,
    Array,
    Fault,
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
    """Makes a trainer whose iteration collects a trajectory under the current policy and learns from it at once.

    A trajectory is ``[T = num_steps, B = fleet.size]``.
    """

    def init(key: Key) -> TrainState:
        key, key_actors, key_learner = jax.random.split(key, 3)
        actors = init_actors(shards.own(key_actors), fleet, learner)
        return initial_state(learner.init(key_learner, actors.obs), actors, (), key)

    def learn(state: TrainState, trajectory: Transition, key: Key) -> tuple[TrainState, Metrics]:
        observed, trajectory, metrics = observe(learner, state.learner, trajectory, key)
        updated = learner.update(observed, trajectory, key)
        return next_state(state, updated.state, (), {**updated.metrics, **metrics}, trajectory)

    return Trainer(init, collector(fleet, learner, num_steps), learn, learner, fleet, num_steps)


def off_policy(
    fleet: Fleet, learner: Learner, replay: Replay, *, num_steps: int, num_updates: int, warmup: int
) -> Trainer:
    """Makes a trainer whose iteration adds a trajectory to ``replay`` and learns from samples of it.

    The trajectory ``[T = num_steps, B = fleet.size]`` is collected under the current policy. Each of the updates takes
    a sample of its own and sets the replay's priorities that result from it; the metrics are averaged. ``init``
    collects the rows of the warm-up with the initial policy; episodes that end there are in no metric.

    Args:
        fleet: The rows.
        learner: The learner.
        replay: The replay.
        num_steps: The number of steps ``T`` of an iteration.
        num_updates: The number of updates of an iteration.
        warmup: The number of rows before the first iteration, a multiple of ``num_steps`` and enough to draw a sample.

    Raises:
        ValueError: ``warmup`` is not such a number.
    """
    if warmup % num_steps or warmup < replay.rows:
        raise ValueError(
            f"warmup = {warmup}: must be a multiple of num_steps = {num_steps}, and at least a sample's {replay.rows}"
        )
    collect = collector(fleet, learner, num_steps)

    def start(key: Key) -> tuple[TrainState, Key]:
        key, key_actors, key_learner, key_warmup = jax.random.split(key, 4)
        actors = init_actors(shards.own(key_actors), fleet, learner)
        initial = learner.init(key_learner, actors.obs)
        _, trajectory, _ = jax.eval_shape(collect, learner.behaviour(initial), actors, key_warmup)
        item = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[2:], x.dtype), trajectory)
        return initial_state(initial, actors, replay.init(item), key), key_warmup

    def fill(state: TrainState, trajectory: Transition) -> TrainState:
        return state._replace(replay=replay.add(state.replay, own_rows(learner, trajectory)))

    def init(key: Key) -> TrainState:
        state, key_warmup = start(key)
        behaviour = learner.behaviour(state.learner)

        def act(now: tuple[Actors, PyTree], key: Key) -> tuple[tuple[Actors, PyTree], None]:
            actors, trajectory, _ = collect(behaviour, now[0], key)
            return (actors, fill(state._replace(replay=now[1]), trajectory).replay), None

        keys = jax.random.split(shards.own(key_warmup), warmup // num_steps)
        with jax.named_scope("warm-up"):
            (actors, stored), _ = jax.lax.scan(act, (state.actors, state.replay), keys)
        return state._replace(actors=actors, replay=stored)

    def learn(state: TrainState, trajectory: Transition, key: Key) -> tuple[TrainState, Metrics]:
        observed, trajectory, more = observe(learner, state.learner, trajectory, key)
        stored = replay.add(state.replay, trajectory)
        after, stored, metrics = updates(learner, replay, observed, stored, key, num_updates)
        return next_state(state, after, stored, {**metrics, **more}, trajectory)

    begin = lambda key: start(key)[0]
    return Trainer(init, collect, learn, learner, fleet, num_steps, fleet.env_steps * warmup, begin, fill)


def offline(
    fleet: Fleet,
    learner: Learner,
    replay: Replay,
    play: Transition | None,
    *,
    num_updates: int,
    stream: Stream | None = None,
    begin: Callable[[PyTree], PyTree] = lambda state: state,
) -> Trainer:
    """Makes a trainer that learns from recorded play alone: no step is taken in an environment.

    An iteration takes ``num_updates`` gradient steps, each on a sample of its own; the metrics are averaged, and those
    of episodes are nan, because none is played. ``init`` shows all of ``play`` to the learner, once
    (`Learner.observe`).

    Args:
        fleet: What the policy is for: `Trainer.fleet`, whose rows are not stepped.
        learner: The learner.
        replay: A replay of ``play``, to which nothing is added.
        play: The recorded steps ``[T, 1]``, as a replay stores them. None: the host shows them to the learner after
            ``init``, piece by piece.
        num_updates: The number of updates of an iteration.
        stream: What the host does if the play lies in its memory: ``replay`` then samples from what it reads.
        begin: Applied to the learner's state before the updates of each iteration.
    """
    nothing: Any = ()
    nobody = Actors(nothing, nothing, nothing, nothing, nothing)
    env: Any = fleet.env
    unknown = {"episode_return": jnp.nan, "episode_length": jnp.nan}

    def init(key: Key) -> TrainState:
        key, key_learner, key_observe = jax.random.split(key, 3)
        one = spaces.struct(env.observation_space)
        obs = jax.tree.map(lambda x: jnp.zeros((1, *x.shape), x.dtype), one)
        state = learner.init(key_learner, obs)
        if play is None:
            return initial_state(state, nobody, (), key)
        state, _ = learner.observe(state, play, key_observe)
        return initial_state(state, nobody, replay.init(play), key)

    def collect(behaviour: PyTree, actors: Actors, key: Key) -> tuple[Actors, tuple[()], Metrics]:
        metrics = {name: jnp.full((), value, jnp.float32) for name, value in unknown.items()}
        return actors, (), {**metrics, "episodes": jnp.zeros((), jnp.int32)}

    def learn(state: TrainState, trajectory: Any, key: Key) -> tuple[TrainState, Metrics]:
        if stream and trajectory == ():
            raise ConfigError("data: is in the host's memory; train_in_chunks and the command line stream it")
        draws = trajectory if stream else None
        first = begin(state.learner)
        after, stored, metrics = updates(learner, replay, first, state.replay, key, num_updates, draws)
        return next_state(state, after, stored, metrics, None)

    return Trainer(init, collect, learn, learner, fleet, num_steps=0, updates=num_updates, stream=stream)


def updates(
    learner: Learner,
    replay: Replay,
    state: PyTree,
    stored: PyTree,
    key: Key,
    num_updates: int,
    draws: PyTree = None,
) -> tuple[PyTree, PyTree, Metrics]:
    """Takes updates of a learner's ``state``, each on a sample of a replay whose state is ``stored``.

    Returns the two states after them, and the mean metrics. Consumes ``key``. ``draws`` ``[num_updates, ...]`` are what
    samples are read from in place of keys (`replay.fed`); None: keys.
    """

    def update(states: PyTree, keys: PyTree) -> tuple[PyTree, Metrics]:
        before, stored = states
        draw, key_update = keys
        sample = replay.sample(stored, draw)
        updated = learner.update(before, sample, key_update)
        return (updated.state, replay.update(stored, sample, updated.scores)), updated.metrics

    key_samples, key_updates = streaming.update_keys(key, num_updates)
    each = key_samples if draws is None else draws, key_updates
    (after, stored), metrics = trees.scan_means(update, (state, stored), each)
    return after, stored, metrics


def collector(
    fleet: Fleet, learner: Learner, num_steps: int
) -> Callable[[PyTree, Actors, Key], tuple[Actors, Transition, Metrics]]:
    """Makes `Trainer.collect` in the rows of ``fleet``, ``num_steps`` at a time."""
    return lambda behaviour, actors, key: rollout(key, fleet, learner, behaviour, actors, num_steps)


def own_rows(learner: Learner, trajectory: Transition) -> Transition:
    """Selects the rows of a trajectory ``[T, B]`` that ``learner`` learns from."""
    return trajectory if learner.rows is None else trees.take(trajectory, (slice(None), learner.rows))


OBSERVE = zlib.crc32(b"observing")
"""Separates the key of `observe` from that of learning."""


def observe(learner: Learner, state: PyTree, trajectory: Transition, key: Key) -> tuple[PyTree, Transition, Metrics]:
    """Shows a trajectory ``[T, B]`` to a learner: returns its state, its own rows ``[T, B']``, and metrics of them.

    Does not consume ``key``, but another that is folded from it.
    """
    own = own_rows(learner, trajectory)
    state, metrics = learner.observe(state, own, jax.random.fold_in(key, OBSERVE))
    return state, own, metrics


def initial_state(learner: PyTree, actors: Actors, replay: PyTree, key: Key) -> TrainState:
    """Makes the state before the first iteration."""
    fault = Fault(jnp.zeros((), jnp.int32), counters.of())
    return TrainState(learner, actors, replay, counters.of(), jnp.ones((), bool), key, fault=fault)


def next_state(
    state: TrainState,
    after: PyTree,
    replay: PyTree,
    metrics: Metrics,
    trajectory: Transition | None,
    loss: Array | None = None,
) -> tuple[TrainState, Metrics]:
    """Makes the result of `Trainer.learn`: counts the iteration, and keeps the new learner if it survives the loss.

    Args:
        state: The state before the iteration.
        after: The learner's new state.
        replay: The replay's new state.
        metrics: The metrics of the iteration.
        trajectory: What was collected in the iteration; None: nothing was.
        loss: The loss that decides survival (`survive`); None: that of the metrics.

    Returns:
        The new state, and the metrics with ``alive``.
    """
    loss, iteration = metrics["loss"] if loss is None else loss, counters.increment(state.iteration)
    alive, learner = survive(state, after, loss)
    reward, obs = (trajectory.reward, trajectory.obs) if trajectory else ((), ())
    kind = fault_kind(reward, obs, loss, metrics.get("grad_norm", ()), after)
    before: Any = state.fault
    fault = jax.tree.map(lambda new, old: jnp.where(before.kind == 0, new, old), Fault(kind, iteration), before)
    state = state._replace(learner=learner, replay=replay, iteration=iteration, alive=alive, fault=fault)
    return state, {**shards.mean(metrics), "alive": alive}


def survive(state: TrainState, learned: PyTree, loss: Array) -> tuple[Array, PyTree]:
    """Decides whether a training is still alive after an iteration, and returns ``alive`` and its learner.

    The learner is ``learned``, or frozen as it was before. A training dies for good when the loss or any float of the
    learner is not finite. The choice touches the learner alone, so that no replay buffer is copied.
    """
    alive = state.alive & shards.every(all_finite((loss, learned)))
    return alive, jax.tree.map(lambda new, old: jnp.where(alive, new, old), learned, state.learner)


def fault_kind(*looked_at: PyTree) -> Array:
    """Returns which of some trees, in the order of `FAULTS`, is the first that is not finite; 0: all are finite."""
    finite = [all_finite(tree) for tree in looked_at]
    if shards.count() > 1:
        finite = list(shards.every(jnp.stack(finite)))
    kind = jnp.zeros((), jnp.int32)
    for number in reversed(range(len(finite))):
        kind = jnp.where(finite[number], kind, number + 1)
    return kind


def all_finite(tree: PyTree) -> Array:
    """Returns whether all floats of a tree are finite."""
    floats = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.inexact)]
    return functools.reduce(jnp.logical_and, (jnp.all(jnp.isfinite(x)) for x in floats), jnp.ones((), bool))


def train(trainer: Trainer, num_iterations: int) -> Callable[[Key], Result]:
    """Makes the whole training as one function ``train(key) -> Result(state, metrics [num_iterations])``.

    The function can be jitted and vmapped, and consumes its key.

    Raises:
        ConfigError: The environments are the host's.
    """
    _on_device(trainer)

    def run(key: Key) -> Result:
        start = trainer.init(key)
        with jax.named_scope("iterations"):
            state, metrics = jax.lax.scan(lambda s, _: trainer.step(s), start, None, num_iterations)
        return Result(state, metrics)

    return run


class Steps(Protocol):
    """A `Trainer`, or anything else whose ``step(state) -> (state, metrics)`` continues it."""

    @property
    def step(self) -> Callable[[Any], tuple[Any, Metrics]]:
        """``(state) -> (state, metrics)``, one iteration."""
        ...


def _on_device(trainer: Any) -> None:
    """Raises `ConfigError` for a `Trainer` whose environments are the host's."""
    if isinstance(trainer, Trainer) and trainer.host:
        on_device(trainer.fleet.env, "purerl.train_in_chunks trains in it")


def chunk(trainer: Steps, capacity: int) -> Callable[[PyTree, Array], tuple[PyTree, Metrics]]:
    """Makes ``chunk(state, length) -> (state, metrics [capacity])``: ``length <= capacity`` iterations of a training.

    One compiled program serves every length; metrics beyond it are zeros.

    Raises:
        ConfigError: The environments are the host's.
    """
    _on_device(trainer)

    step = jax.jit(trainer.step, inline=True)  # traced once, for shapes and for the loop

    def run(state: PyTree, length: Array) -> tuple[PyTree, Metrics]:
        shapes = jax.eval_shape(step, state)[1]
        rows = jax.tree.map(lambda m: jnp.zeros((capacity, *m.shape), m.dtype), shapes)

        def one(i: Array, carry: PyTree) -> PyTree:
            state, rows = carry
            state, metrics = step(state)
            return state, jax.tree.map(lambda r, m: r.at[i].set(m), rows, metrics)

        with jax.named_scope("iterations"):
            return jax.lax.fori_loop(0, length, one, (state, rows))

    return run
