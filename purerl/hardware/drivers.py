"""Whether a GPU can be here at all. Needs no JAX, so that it can be asked before JAX is imported."""

import contextlib
import importlib
import importlib.util
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path

DRIVERS = Path("/dev/nvidiactl"), Path("/dev/dxg"), Path("/dev/nvhost-gpu")
"""What the drivers of NVIDIA's GPUs make: on Linux, in Windows' subsystem for it, and on Jetson."""
CUDA_PLUGINS = "jax_cuda12_plugin", "jax_cuda13_plugin"
"""Kernels of JAX for GPUs, which need a driver."""

COMPILERS = "jax_plugins.xla_cuda12", "jax_plugins.xla_cuda13"
"""What compiles for a GPU."""


def lacks_gpu() -> bool:
    """Whether JAX's CUDA plugin is installed where no driver of a GPU is, as for ``purerl plan --target``. Looking for
    devices it would print a page of errors; nothing else is chosen by ``JAX_PLATFORMS``, and there is no TPU."""
    installed = lambda *names: any(importlib.util.find_spec(name) for name in names)
    driver = any(path.exists() for path in DRIVERS)
    return "JAX_PLATFORMS" not in os.environ and installed(*CUDA_PLUGINS) and not driver and not installed("libtpu")


def look_for_none() -> None:
    """Keeps JAX, which is not imported yet, from loading plugins that have no driver: each writes to stderr that it
    finds none, and nothing else keeps it quiet. `load_compiler` undoes it for what compiles for a GPU."""
    if lacks_gpu():
        os.environ["JAX_PLATFORMS"] = "cpu"
        for name in CUDA_PLUGINS:
            sys.modules[name] = None  # type: ignore[assignment]  # the import system's mark of what cannot be imported
        for name in COMPILERS:
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].initialize = lambda: None  # type: ignore[attr-defined]


def load_compiler() -> None:
    """Loads JAX's compiler for GPUs if `look_for_none` kept it away. What it says of missing drivers is not told."""
    for name in COMPILERS:
        if name in sys.modules and not hasattr(sys.modules[name], "__file__"):
            del sys.modules[name]
            if importlib.util.find_spec(name):
                with _quiet():
                    importlib.import_module(name).initialize()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Leaves out what libraries write to stderr, also those that are not Python's."""
    sys.stderr.flush()
    kept, none = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(none, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(none)
