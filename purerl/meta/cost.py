"""Estimates of what a search would cost, from the speed of short trainings."""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Console

from purerl import envs
from purerl.algos import ALGORITHMS
from purerl.display.progress import say
from purerl.errors import own_code
from purerl.meta.description import SearchDescription
from purerl.meta.search import compile_program

SHORT_LIVES = 2, 16
"""The iterations of the short trainings that are timed."""


def plan(description: SearchDescription, used: Sequence[jax.Device] | None = None) -> dict[str, Any]:
    """Estimates what a search would cost: frames, memory, and time by the speed of short trainings.

    It compiles and runs searches with short trainings, and writes to stderr what it is doing.

    Args:
        description: The search.
        used: The devices; default: all.

    Returns:
        ``frames`` of the search, ``frames_per_generation``, ``peak_bytes``, ``steps_per_second`` and ``wall_seconds``.
    """
    search, config = description.make_evolution(used), description.made_config
    algo, env = ALGORITHMS[description.algo], envs.make(description.envs[0], **description.env_params)
    with own_code(description.algo):
        trainer, whole = algo.make_trainer(config, env), config.num_iterations
    lengths = sorted({min(length, whole) for length in SHORT_LIVES})
    peaks, seconds = [], []
    for length in lengths:
        short, size = trainer.frames(length), description.population
        lives = f"lives of {short:,} instead of {trainer.frames(whole):,} frames"
        say(Console(stderr=True), f"compiling, then timing 2 generations of {size} candidates with {lives} ...")
        peak, taken = _timed(dataclasses.replace(description, config=dict(description.config, total_steps=short)), used)
        peaks.append(peak)
        seconds.append(taken)
    generation = _extrapolate(lengths, seconds, whole)
    frames = search.frames * description.generations
    return {
        "frames": frames,
        "frames_per_generation": search.frames,
        "peak_bytes": max(peaks),
        "steps_per_second": search.frames / generation,
        "wall_seconds": generation * description.generations,
    }


def _timed(description: SearchDescription, used: Sequence[jax.Device] | None) -> tuple[int, float]:
    """Returns the memory of a search's program in bytes, and the seconds of a generation, the faster of two."""
    program, seconds = compile_program(description.make_evolution(used), capacity=1, algo=description.algo), []
    state = program.init(jax.random.key(0))
    for _ in range(2):
        start = time.perf_counter()
        state, _ = jax.block_until_ready(program.chunk(state, jnp.int32(1)))
        seconds.append(time.perf_counter() - start)
    return program.peak_bytes, min(seconds)


def _extrapolate(lengths: list[int], seconds: Sequence[float], whole: int) -> float:
    """Extrapolates the seconds of a training of ``whole`` iterations from the ``seconds`` of shorter ones.

    The beginning of a training, above all a warm-up, has a cost of its own; so an iteration's is taken from the
    difference between two lengths.
    """
    slope = (seconds[-1] - seconds[0]) / max(1, lengths[-1] - lengths[0])
    return seconds[-1] + max(0.0, slope) * (whole - lengths[-1])
