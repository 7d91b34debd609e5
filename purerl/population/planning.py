"""What a program will cost, known before it runs: bytes, arithmetic, and how many members fit."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from purerl.population import devices as machine
from purerl.trees import nbytes
from purerl.types import PyTree


class DoesNotFit(MemoryError):
    """Asked for more memory than there is. The text says how much, and what takes it."""


class Plan(NamedTuple):
    """The predicted cost of a population's program. Bytes are those of all devices together.

    ``peak_bytes`` is what the compiled program holds at most for ``batch_size`` members at once, and
    ``bytes_per_member`` what one more adds; ``fits`` is how many members ``available_bytes`` would hold at once.
    ``flops_per_frame`` counts the jaxpr of one iteration: two for each multiply-add of a product, one for each element
    of any other result. ``replay_bytes`` is what one member's replay holds, where a plan was made for a `Trainer`.
    """

    members: int
    devices: int
    batch_size: int
    peak_bytes: int
    bytes_per_member: int
    available_bytes: int
    fits: int
    flops_per_frame: float
    compile_seconds: float
    replay_bytes: int = 0


def in_words(plan: Plan) -> str:
    """A plan for a person to read."""
    lines = {
        "agents": f"{plan.members:,}",
        "devices": f"{plan.devices}",
        "agents at once": f"{plan.batch_size:,}",
        "peak memory": gigabytes(plan.peak_bytes),
        "memory an agent": gigabytes(plan.bytes_per_member),
        "replay an agent": gigabytes(plan.replay_bytes),
        "free memory": gigabytes(plan.available_bytes),
        "agents that fit": f"{plan.fits:,}",
        "arithmetic a frame": f"{plan.flops_per_frame / 1e6:.3g} MFLOP",
        "compile time": f"{plan.compile_seconds:.1f} s",
    }
    return "\n".join(f"{name:<20}{value}" for name, value in lines.items())


class Compiled(NamedTuple):
    """A program, how many members it takes at once, and what it will cost."""

    program: jax.stages.Compiled
    layout: Any
    batch_size: int
    compile_seconds: float

    @property
    def peak_bytes(self) -> int:
        """What the program holds at most, on all devices together."""
        return held(self.program) * len(self.layout.devices)

    def plan(self, members: int, flops_per_frame: float) -> Plan:
        """The plan of ``members`` members in batches of this program."""
        deal = self.layout
        count, free = len(deal.devices), machine.available_bytes(deal.devices)
        fixed = self.program.memory_analysis().temp_size_in_bytes if deal.groups > 1 else 0
        each = max(1, (held(self.program) - fixed) // (deal.groups * deal.lanes))
        return Plan(
            members=members,
            devices=count,
            batch_size=self.batch_size,
            peak_bytes=self.peak_bytes,
            bytes_per_member=each,
            available_bytes=free * count,
            fits=max(0, free - fixed) // each * count,
            flops_per_frame=flops_per_frame,
            compile_seconds=self.compile_seconds,
        )


def compile_to_fit(
    lower: Callable[[int], tuple[jax.stages.Lowered, Any]], members: int, batch_size: int | str, advice: str
) -> Compiled:
    """Compiles ``lower(batch_size) -> (lowered, layout)`` for the largest batch that the devices' free memory holds.

    ``batch_size`` is a number, or "auto" for all ``members`` if they fit, else as many as do. Raises `DoesNotFit`, with
    ``advice``, if the number does not fit, or not even one member a device does.
    """
    start, count = time.perf_counter(), members if batch_size == "auto" else min(int(batch_size), members)
    while True:
        lowered, layout = lower(count)
        program = lowered.compile()
        need, free = held(program), machine.available_bytes(layout.devices)
        if need <= free:
            return Compiled(program, layout, count, time.perf_counter() - start)
        if batch_size != "auto" or count <= len(layout.devices):
            raise DoesNotFit(
                f"{count} agent(s) at once need {gigabytes(need)} on each device, {gigabytes(free)} are free; {advice}"
            )
        count = max(len(layout.devices), min(count - 1, int(0.9 * count * free / need)))


def check_program(program: jax.stages.Compiled, devices: Sequence[jax.Device], advice: str) -> None:
    """Raises `DoesNotFit`, with ``advice``, if a program holds more than a device's free memory."""
    need, free = held(program), machine.available_bytes(devices)
    if need > free:
        raise DoesNotFit(f"needs {gigabytes(need)} on each device, {gigabytes(free)} are free; {advice}")


def held(program: jax.stages.Compiled) -> int:
    """Bytes that a program holds on each device while it runs: arguments, results and temporaries.

    On CPU ``peak_memory_in_bytes`` leaves the temporaries out.
    """
    memory = program.memory_analysis()
    buffers = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    return max(memory.peak_memory_in_bytes, buffers - memory.alias_size_in_bytes)


def check_state(init: Callable[..., PyTree], *args: Any, devices: Sequence[jax.Device] | None = None) -> None:
    """Raises `DoesNotFit` if what ``init(*args)`` returns is larger than a device's free memory. Computes nothing."""
    state, free = jax.eval_shape(init, *args), machine.available_bytes(devices or jax.devices())
    need = nbytes(state)
    if need > free:
        raise DoesNotFit(
            f"the state of one agent is {gigabytes(need)}, {gigabytes(free)} are free on a device; {largest(state)}"
        )


def largest(state: PyTree, count: int = 3) -> str:
    """The largest arrays of a state, in words."""
    leaves = jax.tree_util.tree_flatten_with_path(state)[0]
    leaves = sorted(leaves, key=lambda leaf: -nbytes(leaf[1]))[:count]
    name = lambda path: jax.tree_util.keystr(path, simple=True, separator=".")  # noqa: E731
    rows = [f"{name(path)} {list(leaf.shape)} {gigabytes(nbytes(leaf))}" for path, leaf in leaves]
    return "largest: " + ", ".join(rows)


def gigabytes(count: float) -> str:
    """``1610612736`` reads ``1.5 GiB``."""
    for size, unit in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"
