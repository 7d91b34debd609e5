"""What the machine has: CPU cores as devices, and memory."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import psutil

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
CGROUP_USED = Path("/sys/fs/cgroup/memory.current")


def use_cpu_cores() -> None:
    """Makes every CPU core that this process may use a device, so that a population can use them all.

    To be called before anything is computed; afterwards JAX raises `RuntimeError`. Does nothing where ``XLA_FLAGS`` or
    ``JAX_NUM_CPU_DEVICES`` sets their number already.
    """
    chosen = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if not chosen and "JAX_NUM_CPU_DEVICES" not in os.environ:
        jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))


def compiler_options(device: jax.Device | None = None) -> dict[str, Any]:
    """Options for `jax.jit` under which the state of a `jax.vmap`'s lane has the bits of a lone run, at any size.

    On CPU three parts of XLA choose the order of a sum by the size of the whole array: its library for reductions, its
    newer emitters of fused loops, and LLVM where it vectorises. All are left out, which halves the speed or worse:
    meant for tests. `train_population` does without. No options elsewhere; ``device`` defaults to the first one.
    """
    if (device or jax.devices()[0]).platform != "cpu":
        return {}
    return {
        "xla_cpu_experimental_ynn_fusion_type": "",
        "xla_cpu_use_fusion_emitters": False,
        "xla_backend_optimization_level": 1,
    }


def available_bytes(devices: Sequence[jax.Device]) -> int:
    """Memory that is free on each of ``devices``. Those of a CPU share the machine's, or their control group's."""
    stats = [device.memory_stats() for device in devices]
    if all(s and "bytes_limit" in s for s in stats):
        return min(s["bytes_limit"] - s["bytes_in_use"] for s in stats)
    free = psutil.virtual_memory().available
    if CGROUP_LIMIT.exists() and (limit := CGROUP_LIMIT.read_text().strip()) != "max":
        free = min(free, int(limit) - int(CGROUP_USED.read_text()))
    return max(free, 0) // len(devices)


def use_compilation_cache(directory: Path) -> None:
    """Keeps compiled programs in ``directory``, for later processes. ``JAX_COMPILATION_CACHE_DIR`` goes before it."""
    if not jax.config.jax_compilation_cache_dir:
        jax.config.update("jax_compilation_cache_dir", str(directory))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
