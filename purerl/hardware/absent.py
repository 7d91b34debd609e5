"""Compiling for a GPU that this machine does not have."""

import functools

import jax

from purerl.errors import ConfigError
from purerl.hardware import drivers
from purerl.hardware.gpus import GPUS, description
from purerl.names import choose

INSTALL = "pip install 'purerl[gpu-plan]'"
"""The command that installs what compiling for a GPU needs besides jax.

This is jax's CUDA plugin and NVIDIA's assembler: no driver, no other library.
"""
PREALLOCATED = 0.75
"""The part of a GPU's memory that JAX takes for itself unless ``XLA_PYTHON_CLIENT_MEM_FRACTION`` sets another."""


def device(name: str) -> jax.Device:
    """Returns the GPU of `gpus.GPUS` called ``name``, as a device that programs can be compiled for but not run on.

    Raises:
        ConfigError: As in `devices`.
    """
    return devices(name)[0]


@functools.cache
def devices(name: str, count: int = 1) -> list[jax.Device]:
    """Returns ``count`` GPUs of one host, each as in `device`.

    Raises:
        ConfigError: The name is unknown, or jax's compiler for GPUs is not installed or does not load.
    """
    from jax.experimental import topologies

    gpu = GPUS[choose("target", name, GPUS)]
    try:
        drivers.load_compiler()
        topology = topologies.get_topology_desc(
            "", platform="cuda", topology=f"1x1x{count}", target_config=description(gpu)
        )
    except Exception as error:  # a missing or incompatible plugin can raise any error
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"target = {name!r}: needs jax's compiler for GPUs, {INSTALL} ({reason})") from None
    return list(topology.devices)


def memory_bytes(device: jax.Device) -> int:
    """Returns the memory that JAX would have on an absent GPU, in bytes.

    Raises:
        ValueError: The device is no GPU of `gpus.GPUS`.
    """
    for gpu in GPUS.values():
        if gpu.name == device.device_kind:
            return int(PREALLOCATED * gpu.memory_bytes)
    raise ValueError(f"{device.device_kind}: no GPU of purerl.hardware.gpus")
