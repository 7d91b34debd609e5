"""Compiling for a GPU that this machine does not have."""

import functools

import jax

from purerl.errors import ConfigError
from purerl.hardware import drivers
from purerl.hardware.gpus import GPUS, description
from purerl.names import choose

INSTALL = "pip install 'purerl[gpu-plan]'"
"""What compiling for a GPU takes besides jax: its CUDA plugin and NVIDIA's assembler. No driver, no other library."""
PREALLOCATED = 0.75
"""Part of a GPU's memory that JAX takes for itself unless ``XLA_PYTHON_CLIENT_MEM_FRACTION`` says otherwise."""


def device(name: str) -> jax.Device:
    """The GPU of `gpus.GPUS` called ``name``, as a device that programs can be compiled for but not run on. Raises as
    `devices` does."""
    return devices(name)[0]


@functools.cache
def devices(name: str, count: int = 1) -> list[jax.Device]:
    """So many GPUs of one host, each as `device`.

    Raises `ConfigError` for an unknown name, and if what compiles for a GPU is not installed.
    """
    from jax.experimental import topologies

    gpu = GPUS[choose("target", name, GPUS)]
    try:
        drivers.load_compiler()
        found = topologies.get_topology_desc(
            "", platform="cuda", topology=f"1x1x{count}", target_config=description(gpu)
        )
    except Exception as error:  # whatever a plugin raises that is missing, or not of jax's version
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"target = {name!r}: needs jax's compiler for GPUs, {INSTALL} ({said})") from None
    return list(found.devices)


def memory_bytes(device: jax.Device) -> int:
    """Memory that JAX would have on an absent GPU, in bytes. Raises `ValueError` for any other device."""
    for gpu in GPUS.values():
        if gpu.name == device.device_kind:
            return int(PREALLOCATED * gpu.memory_bytes)
    raise ValueError(f"{device.device_kind}: no GPU of purerl.hardware.gpus")
