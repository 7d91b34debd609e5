"""The machine: CPU cores as devices, compiler options, free memory, the compilation cache."""

import collections
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import psutil

from purerl import compat, processes
from purerl.errors import ConfigError
from purerl.hardware import absent
from purerl.hosts import container
from purerl.hosts.processes import cores
from purerl.types import PyTree

CPU_FACTS = Path("/proc/cpuinfo")
CACHE = "~/.cache/purerl"
"""The default folder of compiled programs."""
THREADS = "NPROC"
"""The environment variable with the number of threads that XLA starts for the CPU."""
VECTORS = "xla_cpu_prefer_vector_width"
"""The flag of XLA with the number of bits of the CPU's vectors."""


def use_cpu_cores() -> None:
    """Makes every CPU core that this process may use a JAX device, so that a population can use them all.

    It must be called before JAX computes anything. It leaves the devices as they are if ``XLA_FLAGS`` or
    ``JAX_NUM_CPU_DEVICES`` already sets their number. On a CPU with AVX-512 it also adds to ``XLA_FLAGS`` that vectors
    have 512 bits, unless their size is set there: small agents train 4 to 9 % faster than with XLA's 256 bits.

    Raises:
        RuntimeError: JAX has computed something already.
    """
    if not _devices_are_chosen():
        jax.config.update("jax_num_cpu_devices", cores())
    _use_wide_vectors()


def use_one_thread() -> None:
    """Makes JAX compute with one thread on one CPU device, the fastest setting for a lone agent with small networks.

    Where many operations of a loop's body can start at once, XLA on CPU hands half of them to another thread. That
    costs more than it gains while arrays are small: with one thread PPO and DQN on CartPole are 1.2 to 1.4 times as
    fast. Images, layers of more than 128 units and hundreds of environments need the threads (docs/benchmarks.md). So
    does a GPU: XLA compiles for it with as many threads.
    It must be called before JAX computes anything. It leaves threads and devices as they are if ``NPROC``,
    ``XLA_FLAGS`` or ``JAX_NUM_CPU_DEVICES`` already sets their number. Vectors are those of `use_cpu_cores`.

    Raises:
        RuntimeError: JAX has computed something already.
    """
    if THREADS not in os.environ and not _devices_are_chosen():
        jax.config.update("jax_num_cpu_devices", 1)
        os.environ[THREADS] = "1"
    _use_wide_vectors()


def has_avx512() -> bool:
    """Returns whether the CPU has vectors of 512 bits; False where the system does not tell."""
    try:
        return "avx512f" in CPU_FACTS.read_text().split()
    except OSError:
        return False


def _use_wide_vectors() -> None:
    """Lets XLA use AVX-512. By default it does not, because old CPUs lower their clock for it."""
    flags = os.environ.get("XLA_FLAGS", "")
    if VECTORS not in flags and has_avx512():
        os.environ["XLA_FLAGS"] = f"{flags} --{VECTORS}=512".strip()


def _devices_are_chosen() -> bool:
    return "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "") or (
        "JAX_NUM_CPU_DEVICES" in os.environ
    )


def chosen(count: int = 0, per_agent: int = 1) -> list[jax.Device]:
    """Returns the first ``count`` devices that JAX finds (0: all), as many of each process.

    Their number is a multiple of ``per_agent``, the number of devices that each agent lies over.

    Raises:
        ConfigError: There are fewer, ``count`` is not a multiple of the processes, or a process would have none.
    """
    there, several = jax.devices(), processes.count()
    needed, name = max(count, per_agent), "num_devices" if count >= per_agent else "devices_per_agent"
    if needed > len(there):
        of_each = -(-needed // several)
        advice = f"; JAX_NUM_CPU_DEVICES={of_each} has it make as many" if there[0].platform == "cpu" else ""
        raise ConfigError(f"{name} = {needed}: JAX finds {len(there)}{advice}")
    if count % several:
        raise ConfigError(f"num_devices = {count}: must be a multiple of the {several} processes")
    if count:
        of_each = count // several
        there = [x for i in range(several) for x in [y for y in there if y.process_index == i][:of_each]]
    used = there[: len(there) - len(there) % per_agent]
    if len({x.process_index for x in used}) < several:
        raise ConfigError(f"devices_per_agent = {per_agent}: leaves a process without a device")
    return used


def compiler_options(device: jax.Device | None = None) -> dict[str, Any]:
    """Returns options for `jax.jit` under which every lane of a `jax.vmap` computes the same bits as a single run.

    On CPU three parts of XLA choose the order of a sum by the size of the whole array: its reduction library, its
    fusion emitters, and LLVM's vectoriser. These options disable them, as far as jax's version lets them, which at
    least halves the speed; they are meant for tests, and `train_population` does not use them. With jax 0.10.2 all
    algorithms were measured to keep their bits; with 0.11.2 all but Ape-X and R2D2, which round otherwise. For other
    platforms there are no options. ``device`` defaults to the first one.
    """
    device = device or jax.local_devices()[0]
    return compat.lane_options(device) if device.platform == "cpu" else {}


def quick_options(device: jax.Device | None = None) -> dict[str, Any]:
    """Returns options for `jax.jit` under which XLA on CPU compiles in a fraction of the time, for trying things.

    Programs run more slowly and may round otherwise. The options are those of ``--compile quick``, as far as jax's
    version has them. For other platforms there are none. ``device`` defaults to the first one. ::

        result = jax.jit(ppo.make_train(config, env), compiler_options=purerl.quick_options())(key)
    """
    device = device or jax.local_devices()[0]
    return compat.quick_options(device) if device.platform == "cpu" else {}


def cpu(purpose: str) -> jax.Device:
    """Returns the first device of this process's CPU, which JAX has beside accelerators.

    Raises:
        ConfigError: ``JAX_PLATFORMS`` leaves it out; the line says for what ``purpose`` it is needed.
    """
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        raise ConfigError(f"JAX_PLATFORMS: leaves out the CPU, which {purpose}; add cpu, as in cuda,cpu") from None


def available_bytes(devices: Sequence[jax.Device], given: PyTree = None) -> int:
    """Returns the free memory of each of ``devices``, in bytes.

    ``given`` are arrays that a program is given. What lies there of them already counts as free, because it is part of
    what the program needs.
    It is the least over accelerators. CPU devices share the free memory of the machine, or of the process's control
    groups (`hosts.container`), equally. A device that is only compiled for (`hardware.absent`) has what JAX would have
    there. If the devices are of several processes, it is the least of them, all of which must call it.
    """
    here = [device for device in devices if device.process_index == processes.index()]
    free = _available_bytes(here, _lying(here, given))
    if len(here) == len(devices):
        return free
    of_processes = processes.gathered([socket.gethostname(), free])
    if here[0].platform != "cpu":
        return int(min(free for _, free in of_processes))
    beside = collections.Counter(name for name, _ in of_processes)
    return int(min(free // beside[name] for name, free in of_processes))


def _lying(devices: Sequence[jax.Device], given: PyTree) -> collections.Counter[jax.Device]:
    """Returns how many bytes of the arrays ``given`` lie on each of ``devices``."""
    lying: collections.Counter[jax.Device] = collections.Counter()
    arrays = [x for x in jax.tree.leaves(given) if isinstance(x, jax.Array)]
    for part in (part for x in arrays for part in x.addressable_shards if part.device in devices):
        lying[part.device] += part.data.nbytes
    return lying


def _available_bytes(devices: Sequence[jax.Device], lying: collections.Counter[jax.Device]) -> int:
    """Computes `available_bytes` of devices of this process, on which bytes are ``lying`` that count as free."""
    try:
        stats = [device.memory_stats() for device in devices]
    except jax.errors.JaxRuntimeError:
        return min(map(absent.memory_bytes, devices))
    if all(s and "bytes_limit" in s for s in stats):
        return min(s["bytes_limit"] - s["bytes_in_use"] + lying[x] for s, x in zip(stats, devices, strict=True))
    free = min(psutil.virtual_memory().available, container.free_bytes())
    return (max(int(free), 0) + lying.total()) // len(devices)


def use_cache(directory: str | Path = CACHE) -> None:
    """Keeps compiled programs in ``directory`` for later processes, unless ``JAX_COMPILATION_CACHE_DIR`` is set.

    The same program compiles in a fraction of the time then, also in the command line's trainings, whose directory is
    the default. Call it before JAX compiles anything.
    """
    directory = Path(directory).expanduser()
    if not jax.config.jax_compilation_cache_dir:  # type: ignore[attr-defined]  # jax adds its options as it is imported
        jax.config.update("jax_compilation_cache_dir", str(directory))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
