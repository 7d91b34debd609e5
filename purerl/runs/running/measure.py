"""The cost of a training: memory, arithmetic and an estimate of time from its compiled program, or time by a trial."""

import contextlib
import math
import sys
import time
from typing import Any, NamedTuple

import jax

from purerl import backend, trees
from purerl.display import progress
from purerl.errors import ConfigError
from purerl.hardware import absent
from purerl.population import arithmetic, devices, planning
from purerl.runs.describing import datasets, host_options, sharding
from purerl.runs.describing.description import Description, Setup
from purerl.runs.describing.sweep_names import env_part
from purerl.runs.running.device_program import RunProgram, compile_program
from purerl.runs.running.forecast import Forecast, counted, forecast, seconds
from purerl.runs.running.host_program import HostProgram

SECONDS = 3.0
"""The least time, in seconds, for which chunks are timed."""
LEAST_CHUNKS = 2
"""The least number of chunks that are timed, after one that warms up."""


class Speed(NamedTuple):
    """The measured or estimated speed of a training.

    - ``steps_per_second``: environment steps a second of all agents together.
    - ``wall_seconds``: the seconds of the whole training, batch after batch.
    - ``estimated``: whether it is estimated from the compiled program, instead of measured.

    Both mean the same as in a run's summary: compiling and the evaluation are not counted.
    """

    steps_per_second: float
    wall_seconds: float
    estimated: bool = False


def plan(
    description: Description, options: Any, target: str = "", measured: bool = False
) -> tuple[planning.Plan, Speed | Forecast | None]:
    """Determines the cost of a run from its compiled program, here or on the GPU ``target``.

    It writes nothing.

    Args:
        description: The description of the run.
        options: Its options.
        target: The name of a GPU (empty: this machine).
        measured: Whether to train for a few seconds.

    Returns:
        The cost; and beside it a forecast if there is a ``target``, else the speed: of a short training if it is
        ``measured``, else an estimate (`forecast.seconds`), or None if there is none.

    Raises:
        ConfigError: The run cannot be planned.
        DoesNotFit: The run does not fit into memory.
    """
    setup = Setup.of(description)
    batch_size, lanes = options.agents_at_once or "auto", options.lanes or None
    if setup.host and target:
        raise ConfigError(f"target = {target!r}: is not supported for the host environment {description.env}")
    algo, per_agent = description.algo, options.devices_per_agent
    at_least = max(options.num_devices, per_agent)
    used = absent.devices(target, at_least) if target else devices.chosen(options.num_devices, per_agent)
    split = sharding.split(description.split, per_agent)
    program: RunProgram | HostProgram
    if setup.host:
        how = host_options.how(options), options.ahead
        program = HostProgram(setup.make_trainer, setup.members, *how, batch_size, lanes, algo=algo)
    else:
        with backend.tracing_for("gpu") if target else contextlib.nullcontext():
            program = compile_program(
                setup.make_trainer, setup.members, batch_size, used, lanes, algo=algo, split=split
            )
    cost = _cost(setup, program)._replace(shards=split.shards)
    if isinstance(program, RunProgram) and target:
        return cost, forecast(setup, program, cost, target)
    if measured:
        return cost, speed(setup, program)
    if isinstance(program, HostProgram):
        return cost, None
    frames = setup.trainer.frames(setup.config.num_iterations) * setup.members.size
    expected = seconds(counted(setup, program), cost.flops_per_frame * frames / cost.devices)
    return cost, Speed(frames / expected, expected, estimated=True) if expected else None


def _cost(setup: Setup, program: RunProgram | HostProgram) -> planning.Plan:
    """Determines memory, arithmetic and traffic of a compiled training."""
    trainer = setup.trainer
    state = jax.eval_shape(trainer.init, setup.members.keys[0])
    cost = program.chunk.plan(setup.members.size, arithmetic.flops(trainer.step, state) / trainer.env_steps)
    return cost._replace(
        replay_bytes=trees.nbytes(state.replay),
        carry_bytes=trees.nbytes(state.actors.carry),
        sent_bytes=program.sent_bytes if isinstance(program, RunProgram) else 0.0,
        frames_per_iteration=trainer.env_steps,
        dataset_bytes=datasets.nbytes(setup.data(), setup.make_env(env_part(setup.swept, 0))),
        product_flops_per_frame=arithmetic.product_flops(trainer.step, state) / trainer.env_steps,
    )


def speed(setup: Setup, program: RunProgram | HostProgram) -> Speed:
    """Measures the speed of a training.

    It runs one chunk of the first batch to warm up and then further chunks for at least `SECONDS`. The beginning of a
    batch, such as the filling of a replay, is timed separately. Chunks may go on beyond the end of a short training,
    which does not change what they compute.
    """
    size, batch_size, num_iterations = setup.members.size, program.chunk.batch_size, setup.config.num_iterations
    start = time.perf_counter()
    batch = trees.take(setup.members, slice(0, batch_size))
    with contextlib.closing(program):
        running = program.chunks(batch, program.begin(batch), 0, sys.maxsize)
        first = next(running).done
        warm = time.perf_counter()
        for count, chunk in enumerate(running, 1):
            elapsed, done = time.perf_counter() - warm, chunk.done
            if count >= LEAST_CHUNKS and elapsed >= SECONDS:
                break
    iteration = elapsed / (done - first)
    beginning = max(0.0, warm - start - first * iteration)
    wall_seconds = math.ceil(size / batch_size) * (beginning + num_iterations * iteration)
    return Speed(setup.trainer.frames(num_iterations) * size / wall_seconds, wall_seconds)


def in_words(speed: Speed) -> str:
    """Formats a speed as text, in the columns of `planning.in_words`."""
    rough, whence = ("about ", " (an estimate; --measure measures it)") if speed.estimated else ("", "")
    return planning.lines(
        {
            "speed": f"{rough}{progress.frames_per_second(speed.steps_per_second)}{whence}",
            "whole training": f"{rough}{progress.duration(speed.wall_seconds)}",
        }
    )
