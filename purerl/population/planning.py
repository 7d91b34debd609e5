"""The predicted cost of a program before it runs: memory, arithmetic, and how many members fit."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from purerl import backend
from purerl.hardware.census import Census, count
from purerl.population import devices as machine
from purerl.trees import nbytes
from purerl.types import PyTree


class DoesNotFit(MemoryError):
    """An error: a program needs more memory than is free.

    The message states how much, and what takes most of it.
    """


class Plan(NamedTuple):
    """The predicted cost of a population's program. Bytes are totals over all devices, unless they are per member.

    - ``members``: members of the population.
    - ``devices``: number of devices.
    - ``batch_size``: members that the program trains at once.
    - ``peak_bytes``: the most memory that the compiled program holds.
    - ``bytes_per_member``: memory that one more member adds.
    - ``available_bytes``: free memory.
    - ``fits``: members that fit into the free memory at once.
    - ``flops_per_frame``: floating-point operations of one member per environment step (`arithmetic.flops`).
    - ``compile_seconds``: time spent compiling.
    - ``product_flops_per_frame``: those of ``flops_per_frame`` that tensor cores can compute
      (`arithmetic.product_flops`), in plans of a `Trainer`.
    - ``replay_bytes``: size of one member's replay buffer, in plans of a `Trainer`.
    - ``carry_bytes``: size of what one member's actors remember from step to step, such as memories of their episodes.
    - ``dataset_bytes``: size of the datasets that all members learn from. Each device holds them once, or none does.
    - ``data_on``: where they are: "device", or "host", whose memory is not part of the plan; "": there are none.
    - ``sample_bytes``: size of the samples of one member's iteration, which the program is given with data on the host.
    - ``devices_per_member``: devices over which each member lies, in plans of a `Trainer` cut into ``shards``.
    - ``sent_bytes``: bytes that a device sends to the others of a member in an iteration (`splitting.sent`).
    - ``frames_per_iteration``: frames of one member in that iteration.
    - ``frames``: frames of all members together in the whole training, in plans of a `Trainer`.
    - ``frames_unselected``: those that they would take without a selection among them.
    - ``unit``: what counts as a frame (`Trainer.unit`): "updates" where no environment is stepped.
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
    product_flops_per_frame: float = 0.0
    replay_bytes: int = 0
    carry_bytes: int = 0
    dataset_bytes: int = 0
    devices_per_member: int = 1
    shards: int = 1
    sent_bytes: float = 0.0
    frames_per_iteration: int = 0
    frames: int = 0
    frames_unselected: int = 0
    unit: str = "frames"
    data_on: str = ""
    sample_bytes: int = 0


def in_words(plan: Plan) -> str:
    """Returns a plan as text, one line per quantity."""
    quantities = {
        "agents": f"{plan.members:,}",
        **({"all agents take": frames_in_words(plan.frames, plan.frames_unselected, plan.unit)} if plan.frames else {}),
        "devices": f"{plan.devices}",
        "mesh": f"{plan.devices // plan.devices_per_member} x {plan.devices_per_member} (population x data)",
        **({"shards an agent": f"{plan.shards}"} if plan.shards > 1 else {}),
        **({"sent for an agent": _sent(plan)} if plan.sent_bytes else {}),
        "agents at once": f"{plan.batch_size:,}",
        "peak memory": gigabytes(plan.peak_bytes),
        "memory an agent": gigabytes(plan.bytes_per_member),
        "replay an agent": gigabytes(plan.replay_bytes),
        **({"memories an agent": gigabytes(plan.carry_bytes)} if plan.carry_bytes else {}),
        **({_datasets(plan): gigabytes(plan.dataset_bytes)} if plan.dataset_bytes else {}),
        **({"samples an agent": gigabytes(plan.sample_bytes)} if plan.sample_bytes else {}),
        "free memory": gigabytes(plan.available_bytes),
        "agents that fit": f"{plan.fits:,}",
        f"arithmetic a{'n'[: plan.unit == 'updates']} {plan.unit[:-1]}": f"{plan.flops_per_frame / 1e6:.3g} MFLOP",
        "compile time": f"{plan.compile_seconds:.1f} s",
    }
    return lines(quantities)


def frames_in_words(frames: int, unselected: int, unit: str = "frames") -> str:
    """Returns the frames of all members together as text, with those without a selection where it saves some.

    ``unit`` is what counts as a frame.
    """
    return f"{frames:,} {unit}" + (f" instead of {unselected:,}" if frames < unselected else "")


def _datasets(plan: Plan) -> str:
    return "datasets, on host" if plan.data_on == "host" else "datasets, shared"


def _sent(plan: Plan) -> str:
    return f"{gigabytes(plan.sent_bytes)} an iteration, {plan.sent_bytes / plan.frames_per_iteration:.3g} B a frame"


def lines(quantities: dict[str, str]) -> str:
    """Returns quantities by name as text, one per line."""
    return "\n".join(f"{name:<20}{value}" for name, value in quantities.items())


class Compiled(NamedTuple):
    """A compiled program, its `Layout`, the number of members that it trains at once, and its compile time.

    ``shared`` are its arguments that are the same for all members; each device holds them once.
    """

    program: jax.stages.Compiled
    layout: Any
    batch_size: int
    compile_seconds: float
    shared: PyTree = None

    @property
    def peak_bytes(self) -> int:
        """The most memory that the program holds, in bytes, over all devices together."""
        return program_bytes(self.program) * len(self.layout.devices)

    def plan(self, members: int, flops_per_frame: float) -> Plan:
        """Returns the plan of a population of ``members``, trained in batches by this program."""
        deal = self.layout
        count, free = len(deal.devices), machine.available_bytes(deal.devices, self.shared)
        memory: Any = self.program.memory_analysis()
        fixed = nbytes(self.shared) + (memory.temp_size_in_bytes if deal.groups > 1 else 0)
        each = max(1, (program_bytes(self.program) - fixed) // (deal.groups * deal.lanes))
        return Plan(
            members=members,
            devices=count,
            batch_size=self.batch_size,
            peak_bytes=self.peak_bytes,
            bytes_per_member=each * deal.per_agent,
            available_bytes=free * count,
            fits=max(0, free - fixed) // each * (count // deal.per_agent),
            devices_per_member=deal.per_agent,
            flops_per_frame=flops_per_frame,
            compile_seconds=self.compile_seconds,
        )


def census(program: jax.stages.Lowered | jax.stages.Compiled, unknown_trips: int = 1) -> Census:
    """Counts the kernels of a program for a GPU and the bytes that they move, by loop.

    A program that is only lowered is compiled first. This machine need not have the GPU: a function is lowered for it
    with shapes that lie on `hardware.absent.device`. ``unknown_trips`` is the number of iterations of a loop whose
    number the compiler does not know. ::

        place = jax.sharding.SingleDeviceSharding(absent.device("h200"))
        keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 2048))
        lowered = jax.jit(jax.vmap(train)).lower(trees.shapes(keys, place))
        planning.census(lowered).traffic_bytes
    """
    compiled = program.compile() if isinstance(program, jax.stages.Lowered) else program
    return count(compiled.as_text() or "", unknown_trips)


def compile_to_fit(
    lower: Callable[[int], tuple[jax.stages.Lowered, Any]],
    members: int,
    batch_size: int | str,
    advice: str,
    options: dict[str, Any] | None = None,
    shared: PyTree = None,
) -> Compiled:
    """Compiles ``lower(batch_size) -> (lowered, layout)`` for the largest batch that fits into free memory.

    Args:
        lower: Lowers the program of a batch.
        members: The number of members of the population.
        batch_size: A number, or "auto": all ``members`` if they fit, otherwise as many as do.
        advice: The end of the message of `DoesNotFit`.
        options: The compiler's options; None: `backend.compiler_options`.
        shared: That of what is `Compiled`. It may lie on the devices already.

    Raises:
        DoesNotFit: The given number does not fit, or with "auto" not even one member per device does.
    """
    start, count = time.perf_counter(), members if batch_size == "auto" else min(int(batch_size), members)
    while True:
        lowered, layout = lower(count)
        program = lowered.compile(options or backend.compiler_options())
        need, free = program_bytes(program), machine.available_bytes(layout.devices, shared)
        if need <= free:
            return Compiled(program, layout, count, time.perf_counter() - start, shared)
        if batch_size != "auto" or count <= layout.places:
            raise DoesNotFit(
                f"{count} agent(s) at once need {gigabytes(need)} on each device, {gigabytes(free)} are free; {advice}"
            )
        count = max(layout.places, min(count - 1, int(0.9 * count * free / need)))


def check_program(
    program: jax.stages.Compiled, devices: Sequence[jax.Device], advice: str, given: PyTree = None
) -> None:
    """Raises `DoesNotFit`, with ``advice``, if a program needs more than the free memory of a device.

    ``given`` are arguments of it that may lie there already.
    """
    need, free = program_bytes(program), machine.available_bytes(devices, given)
    if need > free:
        raise DoesNotFit(f"needs {gigabytes(need)} on each device, {gigabytes(free)} are free; {advice}")


def program_bytes(program: jax.stages.Compiled) -> int:
    """Returns the bytes that a program holds on each device while it runs: arguments, results and temporaries.

    The sum of buffers is used where XLA's ``peak_memory_in_bytes`` is smaller: on CPU that omits the temporaries.
    """
    memory: Any = program.memory_analysis()
    buffers = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    return max(memory.peak_memory_in_bytes, buffers - memory.alias_size_in_bytes)


def check_state(init: Callable[..., PyTree], *args: Any, devices: Sequence[jax.Device] | None = None) -> None:
    """Raises `DoesNotFit` if the result of ``init(*args)`` exceeds a device's free memory. ``init`` is not run."""
    state, free = jax.eval_shape(init, *args), machine.available_bytes(devices or jax.devices())
    need = nbytes(state)
    if need > free:
        raise DoesNotFit(
            f"the state of one agent is {gigabytes(need)}, {gigabytes(free)} are free on a device; {largest(state)}"
        )


def largest(state: PyTree, count: int = 3) -> str:
    """Returns the ``count`` largest arrays of a state as text: name, shape and size."""
    leaves = jax.tree_util.tree_flatten_with_path(state)[0]
    leaves = sorted(leaves, key=lambda leaf: -nbytes(leaf[1]))[:count]
    name = lambda path: jax.tree_util.keystr(path, simple=True, separator=".")
    rows = [f"{name(path)} {list(leaf.shape)} {gigabytes(nbytes(leaf))}" for path, leaf in leaves]
    return "largest: " + ", ".join(rows)


def gigabytes(count: float) -> str:
    """Returns a number of bytes as text: ``1610612736`` becomes ``1.5 GiB``."""
    for size, unit in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= size:
            number = count / size
            return f"{number:.3g} {unit}" if number < 999.5 else f"{number:.0f} {unit}"
    return f"{count:.0f} B"
