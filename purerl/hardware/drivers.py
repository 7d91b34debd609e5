"""Whether this machine can have a GPU. It needs no JAX, so that it can be asked before JAX is imported."""

import contextlib
import importlib
import importlib.util
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path

DRIVERS = Path("/dev/nvidiactl"), Path("/dev/dxg"), Path("/dev/nvhost-gpu")
"""The files of the drivers of NVIDIA's GPUs: on Linux, in Windows' subsystem for it, and on Jetson."""
CUDA_PLUGINS = "jax_cuda12_plugin", "jax_cuda13_plugin"
"""The plugins with JAX's kernels for GPUs, which need a driver."""

COMPILERS = "jax_plugins.xla_cuda12", "jax_plugins.xla_cuda13"
"""The plugins that compile for a GPU."""


def lacks_gpu() -> bool:
    """Returns whether JAX's CUDA plugin is installed without a driver of a GPU, as for ``purerl plan --target``.

    JAX would then print a page of errors when it looks for devices. False if ``JAX_PLATFORMS`` is set, or if the
    library of TPUs is installed.
    """
    driver = any(path.exists() for path in DRIVERS)
    return "JAX_PLATFORMS" not in os.environ and _installed(*CUDA_PLUGINS) and not driver and not _installed("libtpu")


def has_only_cpu() -> bool:
    """Returns whether JAX finds no device but the CPU, by ``JAX_PLATFORMS`` or the plugins and drivers that are there.

    Plugins of devices other than NVIDIA's GPUs and TPUs are not looked for.
    """
    if chosen := os.environ.get("JAX_PLATFORMS"):
        return chosen == "cpu"
    return lacks_gpu() or not _installed(*CUDA_PLUGINS, "libtpu")


def _installed(*names: str) -> bool:
    return any(importlib.util.find_spec(name) for name in names)


def look_for_none() -> None:
    """Keeps JAX, which is not imported yet, from loading plugins that have no driver.

    Each plugin writes to stderr that it finds none, and nothing else keeps it quiet. `load_compiler` undoes it for what
    compiles for a GPU.
    """
    if lacks_gpu():
        os.environ["JAX_PLATFORMS"] = "cpu"
        for name in CUDA_PLUGINS:
            sys.modules[name] = None  # type: ignore[assignment]  # the import system's mark of what cannot be imported
        for name in COMPILERS:
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].initialize = lambda: None  # type: ignore[attr-defined]


def load_compiler() -> None:
    """Loads JAX's compiler for GPUs if `look_for_none` kept it away, and hides its messages about missing drivers."""
    for name in COMPILERS:
        if name in sys.modules and not hasattr(sys.modules[name], "__file__"):
            del sys.modules[name]
            if importlib.util.find_spec(name):
                with _quiet():
                    importlib.import_module(name).initialize()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides what libraries write to stderr, also those that are not Python's."""
    sys.stderr.flush()
    kept, none = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(none, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(none)
