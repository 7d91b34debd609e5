"""What a training will cost: memory, arithmetic and time, from its compiled program, by a trial, or on another GPU."""

import contextlib
import math
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from purerl import backend, trees
from purerl.display import progress
from purerl.errors import ConfigError
from purerl.hardware import absent, speed
from purerl.hardware.census import Census
from purerl.hardware.gpus import GPUS
from purerl.loops.streaming import traceable
from purerl.population import arithmetic, devices, planning
from purerl.runs.describing import datasets, environments, sharding
from purerl.runs.describing.description import Setup, TrainingDescription
from purerl.runs.running import run_loop, selecting, streaming
from purerl.runs.running.device_program import RunProgram
from purerl.runs.running.host_program import HostProgram

DENSE = 24
"""The most times as long as its kernels and bytes that the arithmetic of a program was seen to take on a CPU."""
SHOWN = 0.01
"""The text leaves out loops that take less than this fraction of the time."""


class Forecast(NamedTuple):
    """A forecast of a whole training of all agents on GPUs of a kind.

    It does not count compiling, the evaluation at the end, and the time that several GPUs take to send to one another
    what `planning.Plan.sent_bytes` counts.

    - ``target``: the name of the GPU in `GPUS`.
    - ``kernels``: the number of kernels that run on each GPU.
    - ``traffic_bytes``: the bytes that they move between a GPU's memory and its processors.
    - ``bound``: what takes most of the time: "launches", "memory" or "arithmetic".
    - ``wall_seconds``: the expected seconds.
    - ``frames_per_second_at_most``, ``frames_per_second``: environment steps a second of all agents together, if the
      GPU reached its limits, and as expected.
    - ``unit``: what counts as a frame (`Trainer.unit`).
    - ``loops``: for each loop the fields of `census.Loop` and, for all its runs together, of `speed.Speed`.
    """

    target: str
    kernels: int
    traffic_bytes: int
    bound: str
    wall_seconds: float
    frames_per_second_at_most: float
    frames_per_second: float
    loops: list[dict[str, Any]]
    unit: str = "frames"

    def in_words(self) -> str:
        """Formats it as text, in the columns of `planning.in_words`, with a table of its loops."""
        expected = progress.frames_per_second(self.frames_per_second, self.unit)
        quantities = {
            "target": GPUS[self.target].name,
            "kernels": f"{self.kernels:.3g}",
            "traffic": planning.gigabytes(self.traffic_bytes),
            "bound by": self.bound,
            "speed at most": progress.frames_per_second(self.frames_per_second_at_most, self.unit),
            "speed expected": f"{expected} (a prediction: nothing was run)",
            "whole training": f"{progress.duration(self.wall_seconds)} (expected)",
        }
        rows = [f"{'loop':<36}{'runs':>12}{'kernels':>10}{'traffic':>12}{'bound by':>10}{'time':>7}"]
        for loop in self.loops:
            share = loop["seconds"] / self.wall_seconds
            if share >= SHOWN or not loop["depth"]:
                name, moved = "  " * loop["depth"] + loop["label"], planning.gigabytes(loop["traffic_bytes"])
                row = f"{name:<36}{loop['runs']:>12,}{loop['kernels']:>10}{moved:>12}{loop['bound']:>10}{share:>7.0%}"
                rows.append(row)
        return "\n".join([planning.lines(quantities), "", *rows, "(kernels and traffic: of one run of the loop)"])


def forecast(setup: Setup, program: RunProgram, cost: planning.Plan, target: str) -> Forecast:
    """Counts the kernels and the traffic of a program, compiled for a GPU of `GPUS`, and predicts its speed there.

    ``cost`` is the memory and the arithmetic of the program.
    """
    gpu, census = GPUS[target], counted(setup, program)
    frames = setup.trainer.counted(setup.config.num_iterations) * cost.members
    products = cost.product_flops_per_frame * frames if backend.tensor_cores() else 0.0
    of_a_device = (cost.flops_per_frame * frames / cost.devices, gpu, products / cost.devices)
    result = speed.of_program(census, *of_a_device)
    return Forecast(
        target=target,
        kernels=census.kernels,
        traffic_bytes=census.traffic_bytes,
        bound=result.bound,
        wall_seconds=result.seconds,
        frames_per_second_at_most=frames / result.least_seconds,
        frames_per_second=frames / result.seconds,
        unit=setup.trainer.unit,
        loops=[{**loop._asdict(), **speed.of_loop(loop, gpu)._asdict()} for loop in census.loops],
    )


def counted(setup: Setup, program: RunProgram) -> Census:
    """Counts the kernels and bytes of a whole training on each device, batch after batch."""
    iterations, batches = setup.config.num_iterations, math.ceil(setup.members.size / program.chunk.batch_size)
    parts = {"beginning": planning.census(program.init), "chunks": planning.census(program.chunk.program, iterations)}
    return Census([loop for name, part in parts.items() for loop in part.named(name, batches).loops])


def seconds(census: Census, flops: float) -> float:
    """Estimates the seconds of a program on this machine's devices; 0 if their speed is not known.

    ``census`` and ``flops``, the floating-point operations, are those of each device.
    """
    kind = jax.devices()[0]
    if kind.platform == "cpu":
        return speed.on_cpu(census, flops)
    gpu = next((gpu for gpu in GPUS.values() if gpu.name == kind.device_kind), None)
    return speed.of_program(census, flops, gpu).seconds if gpu else 0.0


def expected(census: Census, flops: Callable[[], float]) -> float:
    """Estimates the seconds of a program as `seconds` does, and counts its operations, by ``flops()``, if they matter.

    Without them the estimate is at most `DENSE` times too low.
    """
    least = seconds(census, 0.0)
    return least if least < run_loop.LONG_SECONDS / DENSE else seconds(census, flops())


SECONDS = 3.0
"""The least time, in seconds, for which chunks are timed."""
LEAST_CHUNKS = 2
"""The least number of chunks that are timed, after one that warms up."""


class Speed(NamedTuple):
    """The measured or estimated speed of a training.

    - ``steps_per_second``: environment steps a second of all agents together.
    - ``wall_seconds``: the seconds of the whole training, batch after batch.
    - ``estimated``: whether it is estimated from the compiled program, instead of measured.
    - ``unit``: what counts as a step (`Trainer.unit`).

    Both mean the same as in a run's summary: compiling and the evaluation are not counted.
    """

    steps_per_second: float
    wall_seconds: float
    estimated: bool = False
    unit: str = "frames"

    def in_words(self) -> str:
        """Formats it as text, in the columns of `planning.in_words`."""
        rough, whence = ("about ", " (an estimate; --measure measures it)") if self.estimated else ("", "")
        return planning.lines(
            {
                "speed": f"{rough}{progress.frames_per_second(self.steps_per_second, self.unit)}{whence}",
                "whole training": f"{rough}{progress.duration(self.wall_seconds)}",
            }
        )


def plan(
    description: TrainingDescription, options: Any, target: str = "", measured: bool = False
) -> tuple[planning.Plan, Speed | Forecast | None]:
    """Determines the cost of a run from its compiled program, here or on the GPU ``target``.

    It writes nothing. An empty target is this machine. If it is ``measured``, it trains for a few seconds.

    Returns:
        The cost; and beside it a forecast if there is a ``target``, else the speed: of a short training if it is
        ``measured``, else an estimate (`seconds`), or None if there is none.

    Raises:
        ConfigError: The run cannot be planned.
        DoesNotFit: The run does not fit into memory.
    """
    return streaming.placed(options, lambda settled: _plan(description, settled, target, measured))


def _plan(
    description: TrainingDescription, options: Any, target: str, measured: bool
) -> tuple[planning.Plan, Speed | Forecast | None]:
    """Determines what `plan` does, with the dataset where ``options`` say."""
    data_on = datasets.where(options)
    setup = Setup.of(description, data_on=data_on)
    batch_size, lanes = options.agents_at_once or "auto", options.lanes or None
    if setup.on_host and target:
        raise ConfigError(f"target = {target!r}: is not supported for the host environment {description.env}")
    algo, per_agent = description.algo, options.devices_per_agent
    at_least = max(options.num_devices, per_agent)
    used = absent.devices(target, at_least) if target else devices.chosen(options.num_devices, per_agent)
    split = sharding.split(description.split, per_agent)
    program: RunProgram | HostProgram
    if setup.on_host:
        how = environments.how(options), options.ahead
        program = HostProgram(setup.make_trainer, setup.members, *how, batch_size, lanes, algo=algo)
    else:
        with backend.tracing_for("gpu") if target else contextlib.nullcontext():
            program = selecting.compile_selected(setup, batch_size, devices=used, lanes=lanes, algo=algo, split=split)
    cost = _cost(setup, program)._replace(shards=split.shards, data_on=data_on if setup.data() else "")
    if isinstance(program, RunProgram) and target:
        return cost, forecast(setup, program, cost, target)
    if measured:
        return cost, measured_speed(setup, program)
    if isinstance(program, HostProgram):
        return cost, None
    whole = setup.trainer.counted(setup.config.num_iterations) * setup.members.size
    expected = seconds(counted(setup, program), cost.flops_per_frame * whole / cost.devices)
    expected *= selecting.share(setup, program)
    return cost, Speed(cost.frames / expected, expected, True, setup.trainer.unit) if expected else None


def _cost(setup: Setup, program: RunProgram | HostProgram) -> planning.Plan:
    """Determines memory, arithmetic and traffic of a compiled training."""
    trainer = traceable(setup.trainer)
    stream = setup.trainer.stream
    state = jax.eval_shape(trainer.init, setup.members.keys[0])
    cost = program.chunk.plan(setup.members.size, arithmetic.flops(trainer.step, state) / trainer.counts)
    return cost._replace(
        replay_bytes=trees.nbytes(state.replay),
        carry_bytes=trees.nbytes(state.actors.carry),
        sent_bytes=program.sent_bytes if isinstance(program, RunProgram) else 0.0,
        frames_per_iteration=trainer.counts,
        frames=setup.frames,
        frames_unselected=setup.trainer.counted(setup.config.num_iterations) * setup.members.size,
        peak_bytes=program.peak_bytes,
        dataset_bytes=stream.data.nbytes if stream else trees.nbytes(setup.data()),
        sample_bytes=trees.nbytes(stream.like) if stream else 0,
        unit=trainer.unit,
        product_flops_per_frame=arithmetic.product_flops(trainer.step, state) / trainer.counts,
    )


def measured_speed(setup: Setup, program: RunProgram | HostProgram) -> Speed:
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
    share = selecting.share(setup, program) if isinstance(program, RunProgram) else 1.0
    wall_seconds = math.ceil(size / batch_size) * (beginning + num_iterations * iteration * share)
    return Speed(setup.frames / wall_seconds, wall_seconds, unit=setup.trainer.unit)
