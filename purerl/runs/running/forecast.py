"""A forecast of a training on a GPU that this machine need not have, and an estimate of how long it takes here."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from purerl import backend
from purerl.display import progress
from purerl.hardware import speed
from purerl.hardware.census import Census
from purerl.hardware.gpus import GPUS
from purerl.population import planning
from purerl.runs.describing.description import Setup
from purerl.runs.running import run_loop
from purerl.runs.running.device_program import RunProgram

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


def forecast(setup: Setup, program: RunProgram, cost: planning.Plan, target: str) -> Forecast:
    """Counts the kernels and the traffic of a program and predicts its speed on a GPU.

    Args:
        setup: The setup of the run.
        program: Its program, compiled for ``target``.
        cost: The program's memory and arithmetic.
        target: The name of the GPU in `GPUS`.
    """
    gpu, census = GPUS[target], counted(setup, program)
    frames = setup.trainer.frames(setup.config.num_iterations) * cost.members
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
        loops=[{**loop._asdict(), **speed.of_loop(loop, gpu)._asdict()} for loop in census.loops],
    )


def counted(setup: Setup, program: RunProgram) -> Census:
    """Counts the kernels and bytes of a whole training on each device, batch after batch."""
    iterations, batches = setup.config.num_iterations, math.ceil(setup.members.size / program.chunk.batch_size)
    parts = {"beginning": planning.census(program.init), "chunks": planning.census(program.chunk.program, iterations)}
    return Census([loop for name, part in parts.items() for loop in part.named(name, batches).loops])


def seconds(census: Census, flops: float) -> float:
    """Estimates the seconds of a program on this machine's devices; 0 if their speed is not known.

    Args:
        census: The kernels and bytes of the program on each device.
        flops: The floating-point operations of each device.
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


def in_words(forecast: Forecast) -> str:
    """Formats a forecast as text, in the columns of `planning.in_words`, with a table of its loops."""
    quantities = {
        "target": GPUS[forecast.target].name,
        "kernels": f"{forecast.kernels:.3g}",
        "traffic": planning.gigabytes(forecast.traffic_bytes),
        "bound by": forecast.bound,
        "speed at most": progress.frames_per_second(forecast.frames_per_second_at_most),
        "speed expected": f"{progress.frames_per_second(forecast.frames_per_second)} (a prediction: nothing was run)",
        "whole training": f"{progress.duration(forecast.wall_seconds)} (expected)",
    }
    rows = [f"{'loop':<36}{'runs':>12}{'kernels':>10}{'traffic':>12}{'bound by':>10}{'time':>7}"]
    for loop in forecast.loops:
        share = loop["seconds"] / forecast.wall_seconds
        if share >= SHOWN or not loop["depth"]:
            moved = planning.gigabytes(loop["traffic_bytes"])
            name = "  " * loop["depth"] + loop["label"]
            rows.append(
                f"{name:<36}{loop['runs']:>12,}{loop['kernels']:>10}{moved:>12}{loop['bound']:>10}{share:>7.0%}"
            )
    return "\n".join([planning.lines(quantities), "", *rows, "(kernels and traffic: of one run of the loop)"])
