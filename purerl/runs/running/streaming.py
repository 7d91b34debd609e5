"""Trainings whose dataset stays in the host's memory: the host reads each iteration's samples, one iteration ahead."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import numpy as np

from purerl import population, processes, trees
from purerl.display.progress import console, say
from purerl.loops import Stream
from purerl.loops.trainers import OBSERVE
from purerl.population import devices, layouts
from purerl.population.planning import DoesNotFit
from purerl.replay.streamed import Drawn
from purerl.runs.describing import datasets
from purerl.runs.describing.datasets import AUTO, DEVICE, HOST
from purerl.types import Key, PyTree, Trainer, TrainState

T = TypeVar("T")
SAMPLES = "samples"
"""The argument of a member that has the samples of its iteration."""


def placed(options: Any, attempt: Callable[[Any], T]) -> T:
    """Returns ``attempt(options)``, with their ``data_on`` settled: `AUTO` is `HOST` where `DEVICE` does not fit.

    Raises:
        DoesNotFit: It does not fit either way, or there are several processes, which cannot stream.
    """
    if datasets.where(options) != AUTO:
        return attempt(options)
    try:
        return attempt(dataclasses.replace(options, data_on=DEVICE))
    except DoesNotFit as error:
        if options.processes:
            raise
        reason = str(error)
    say(console(), f"the data stay in the host's memory: on a device the training does not fit ({reason})")
    return attempt(dataclasses.replace(options, data_on=HOST))


def fed(make_trainer: Callable[..., Trainer]) -> Callable[..., Trainer]:
    """Returns ``make_trainer``, whose trainers learn from given `SAMPLES` where they are an argument."""

    def make(samples: PyTree = None, **given: Any) -> Trainer:
        trainer = make_trainer(**given)
        return trainer if samples is None else trainer.fed(samples)

    return make


def shown(
    stream: Stream, make_trainer: Callable[..., Trainer], layout: population.Layout, given: PyTree, state: TrainState
) -> TrainState:
    """Shows the learners of members ``[P]`` all of the data, piece by piece (`Learner.observe`), before they learn.

    Where that changes nothing the data are not read.

    Args:
        stream: The stream.
        make_trainer: Makes the trainer of a member.
        layout: The layout of the members.
        given: The arguments of the members, on its devices.
        state: Their first states, which are overwritten.
    """

    def one(given: dict[str, Any], state: TrainState, play: PyTree) -> tuple[TrainState, tuple[()]]:
        learner, key = make_trainer(**given).learner, jax.random.fold_in(state.key, OBSERVE)
        return state._replace(learner=learner.observe(state.learner, play, key)[0]), ()

    pieces = stream.data.pieces()
    first = next(pieces)
    traced = jax.make_jaxpr(lambda state, play: one(trees.take(given, 0), state, play)[0])
    jaxpr = traced(jax.eval_shape(lambda state: trees.take(state, 0), state), first).jaxpr
    if jaxpr.outvars == jaxpr.invars[: len(jaxpr.outvars)]:
        return state
    show = jax.jit(layouts.spread(one, layout), donate_argnums=1, out_shardings=(layout.sharding, ()))
    for play in itertools.chain([first], pieces):
        state = show(given, state, play)[0]
    return state


def drawing() -> jax.Device:
    """Returns the device that draws. Raises `ConfigError` if there is no CPU."""
    return devices.cpu("draws the samples of data on the host")


def samples(stream: Stream, keys: Key) -> Iterator[Drawn]:
    """Reads what trainings ``[P]`` learn from, iteration after iteration, ``[P, num_updates, batch_size]``.

    Each draws by its own key, that of its state before the first of these iterations, as it would on the device. The
    draws are computed on the CPU, so that they do not wait for the device.
    """
    keys = jax.device_put(keys, drawing())
    while True:
        keys, slots = stream.draw(keys)
        yield stream.data.read(np.asarray(slots))


def advancing(
    program: Callable[..., tuple[TrainState, dict[str, Any]]],
    stream: Stream,
    layout: population.Layout,
    given: dict[str, Any],
    state: TrainState,
) -> Callable[[TrainState, Any], tuple[TrainState, dict[str, Any]]]:
    """Makes what `run_loop.advance` runs: ``length`` iterations, from ``state`` on, each on samples that the host read.

    While the devices compute an iteration, the host reads the samples of the next one.

    Args:
        program: ``program(given, state) -> (state, metrics [P, 1])`` runs an iteration, with `SAMPLES` in ``given``.
        stream: The stream.
        layout: The layout of the members ``[P]``.
        given: The arguments of the members, on its devices.
        state: Their states.
    """
    reading = samples(stream, state.key)
    waiting = [next(reading)]

    def advance(state: TrainState, length: Any) -> tuple[TrainState, dict[str, Any]]:
        rows = []
        for _ in range(length):
            state, metrics = program({**given, SAMPLES: processes.put(waiting.pop(), layout.sharding)}, state)
            waiting.append(next(reading))
            rows.append(jax.device_get(metrics))
        return state, {name: np.concatenate([row[name] for row in rows], axis=1) for name in rows[0]}

    return advance
