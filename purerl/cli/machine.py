"""The set-up of the machine for one command that computes."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from purerl import catalogue, interrupts
from purerl.display import output
from purerl.errors import ConfigError

if TYPE_CHECKING:
    from purerl.runs.describing.options import MachineOptions, RunOptions

CACHE_OFF = "off"
"""The directory of compiled programs that means that there is no cache."""
DETERMINISTIC = "--xla_gpu_deterministic_ops=true"
SMALL_ENVS, SMALL_WIDTH = 16, 128
"""Environments of an agent, and units of a layer, up to which one thread of a CPU was measured to be the faster."""


def is_small(options: "RunOptions", config: Any) -> bool:
    """Returns whether one agent learns from vectors with small networks in few environments, on one device."""
    widths = (*getattr(config, "hidden_sizes", ()), getattr(config, "memory_size", 0))
    if options.devices_per_agent > 1 or options.num_devices > 1 or options.processes:
        return False
    few = config.num_envs <= SMALL_ENVS and max(widths) <= SMALL_WIDTH
    return few and options.num_seeds == 1 and options.env in catalogue.VECTORS


def ended(words: str, code: int) -> None:
    """Ends this process with an error line and an exit code, because another one has ended."""
    interrupts.leave(code, f"purerl: error: {words}")


@contextlib.contextmanager
def prepared(options: "MachineOptions", target: str = "", small: bool = False) -> Iterator[None]:
    """Sets JAX up for a whole program: its devices, the compilation cache, and running out of memory as `MemoryError`.

    From here on the standard output is for `output.show` alone.
    With ``--processes`` all of them enter and leave together; if one dies, the others end with an error line. Without
    it, a process that was started as one of several says so.

    Args:
        options: The options of the command.
        target: A GPU that is only compiled for (empty: none). With one, JAX looks for no device but the CPU.
        small: Whether the training is small (`is_small`) and gets one thread if a CPU computes it and the options leave
            it open.

    Raises:
        ConfigError: The machine has no device of the kind that the options ask for.
        ConnectionError: The other processes cannot be reached.
        MemoryError: Memory ran out in a computation within.
    """
    output.divert()

    import jax

    from purerl import processes
    from purerl.population.devices import use_cache

    together = getattr(options, "processes", "")
    if together:
        processes.check(together)
        together = "" if jax.distributed.is_initialized() else together  # a sweep of programs prepares each
    elif hasattr(options, "processes") and (words := processes.beside(os.environ)):
        print(f"purerl: {words}", file=sys.stderr)
    choose_devices(options, target, small)
    if together:
        print(f"processes {together}: waiting for all of them", file=sys.stderr)
        processes.begin(together, ended)
    check_device(options)
    if target:  # JAX warns that it cannot read programs cached for another device
        jax.config.update("jax_enable_compilation_cache", False)
    elif options.compilation_cache != CACHE_OFF:
        use_cache(options.compilation_cache)
    with computing(options):
        yield
        if together:
            processes.finish()


def choose_devices(options: "MachineOptions", target: str = "", small: bool = False) -> None:
    """Sets flags of XLA, threads of the CPU and the kind of device, before JAX looks for devices; see `prepared`."""
    import jax

    from purerl.hardware.drivers import has_only_cpu, lacks_gpu
    from purerl.population.devices import use_cpu_cores, use_one_thread

    if options.deterministic:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {DETERMINISTIC}".strip()
    on_cpu = not target and (options.device == "cpu" or has_only_cpu())
    with contextlib.suppress(RuntimeError):  # JAX has computed already in this process
        if options.threads == "one" or (options.threads == "auto" and small and on_cpu):
            use_one_thread()
        else:
            use_cpu_cores()
        if options.device == "cpu" or target or lacks_gpu():
            jax.config.update("jax_platforms", "cpu")


def check_device(options: "MachineOptions") -> None:
    """Raises `ConfigError` if the machine has no device of the kind that the options ask for."""
    import jax

    platform = jax.devices()[0].platform
    if options.device not in ("any", platform):
        raise ConfigError(f"device = {options.device!r}: is not available; JAX finds {platform}")


@contextlib.contextmanager
def computing(options: "MachineOptions") -> Iterator[None]:
    """Compiles and computes within as the options say. Raises `MemoryError` where the memory of a device runs out."""
    import jax

    from purerl import backend

    platform = jax.devices()[0].platform
    with _out_of_memory(platform), backend.precise(options.precision), backend.compiling(options.compile):
        yield


@contextlib.contextmanager
def _out_of_memory(platform: str) -> Iterator[None]:
    """Raises `MemoryError`, with advice, where memory of a device runs out within."""
    import jax

    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        advice = "give fewer --lanes or (but to evolve) --agents-at-once, or cut num_envs"
        if platform == "gpu":
            advice += "; if another process holds the memory of the GPU, set XLA_PYTHON_CLIENT_PREALLOCATE=false"
            advice += " or a smaller XLA_PYTHON_CLIENT_MEM_FRACTION in its environment"
        raise MemoryError(f"{str(error).splitlines()[0]}; {advice}") from None
