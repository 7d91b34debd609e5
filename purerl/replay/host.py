"""Replay buffers in host memory, for training on a device."""

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import jaxpr_as_fun

from purerl import compat
from purerl.types import PyTree, Replay

HOST, DEVICE = jax.memory.Space.Host, jax.memory.Space.Device


def on_host(replay: Replay) -> Replay:
    """Keeps the state of ``replay`` in pinned host memory, for buffers larger than the device's memory.

    The host reads and writes the buffer; only trajectories, samples and priorities are transferred. Samples are the
    same as those of ``replay``. For use inside `jax.jit`.

    Raises:
        ValueError: The backend has no memory kind ``pinned_host``.
    """
    kinds = [memory.kind for memory in jax.local_devices()[0].addressable_memories()]
    if "pinned_host" not in kinds:
        raise ValueError(f"this backend has no memory kind pinned_host, only {', '.join(kinds)}")

    def hosted(function: Callable[..., PyTree], space: Any) -> Callable[..., PyTree]:
        """Makes a function that executes ``function`` on the host, with its result in the memory ``space``.

        JAX does not allow an operation to mix memory spaces, and places constants inside ``function`` in device memory.
        So ``function`` is traced with device memory throughout, and its jaxpr is then executed on the host as a whole.
        """

        def run(*args: PyTree) -> PyTree:
            shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), args)
            program, result = jax.make_jaxpr(jax.jit(function), return_shape=True)(*shapes)
            call = compat.compute_on_host(jaxpr_as_fun(program), space)
            return jax.tree.unflatten(jax.tree.structure(result), call(*jax.tree.leaves(jax.device_put(args, HOST))))

        return run

    return replay._replace(
        init=lambda item: hosted(lambda: replay.init(item), HOST)(),
        add=hosted(replay.add, HOST),
        sample=hosted(replay.sample, DEVICE),
        update=hosted(replay.update, HOST),
    )
