"""The processes of a run, which run the same program in step.

This module tells them apart, has arrays that they hold together, and exchanges values between them. With one process
everything here does what it would do without this module. JAX joins the processes (`jax.distributed`); the first speaks
with each of the others over a `purerl.channel`.
"""

import collections
import json
import sys
import threading
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from purerl import channel, interrupts
from purerl.channel import Channel, Ended
from purerl.errors import ConfigError
from purerl.types import PyTree

AUTO = "auto"
FORM = (
    "must be auto, or ADDRESS,N,ID such as 10.0.0.1:1234,2,0: where process 0 is, how many there are, and which this is"
)
LAUNCHERS = (
    ("Slurm", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), "SLURM_PROCID", AUTO),
    ("Open MPI", ("OMPI_COMM_WORLD_SIZE",), "OMPI_COMM_WORLD_RANK", AUTO),
    ("MPI", ("PMI_SIZE",), "PMI_RANK", "ADDRESS,N,ID"),
)
"""Launchers of several processes: their names, the variables with the number of processes, of which the first counts,
and with that of this one; and the ``--processes`` that joins them."""
JOIN_SECONDS = 300
"""Seconds that the processes wait for one another at the start."""
HEARTBEAT = 10
"""Seconds without a sign of life after which JAX gives up a process whose machine is gone."""
LOOPBACK = "127.0.0.1", "localhost", "::1"
MOST_BYTES = 1024
"""The largest size of the address of a channel, as JSON, in bytes."""


def index() -> int:
    """Returns the number of this process, from 0 on."""
    return jax.process_index()


def count() -> int:
    """Returns how many processes there are."""
    return jax.process_count()


def is_first() -> bool:
    """Returns whether this is the process that writes what all have in common."""
    return index() == 0


def put(tree: PyTree, sharding: Any) -> PyTree:
    """Places a tree of arrays and typed keys as `jax.device_put` does: every device gets its part.

    Every process must have the whole tree. ``sharding`` is one for all leaves, or a tree of them.
    """
    if count() == 1:
        return jax.device_put(tree, sharding)
    return jax.tree.map(_put, tree, jax.tree.broadcast(sharding, tree))


def fetch(tree: PyTree) -> PyTree:
    """Returns a tree of arrays on the host, as `jax.device_get` does, on every process. All processes must call it."""
    leaves, structure = jax.tree.flatten(tree)
    far = {i: x for i, x in enumerate(leaves) if isinstance(x, jax.Array) and not x.is_fully_addressable}
    parted = [i for i, x in far.items() if not x.is_fully_replicated]
    if parted:
        sharding: Any = far[parted[0]].sharding
        everywhere = NamedSharding(sharding.mesh, PartitionSpec())
        whole = jax.jit(_same, out_shardings=everywhere)([far[i] for i in parted])
        far |= dict(zip(parted, whole, strict=True))
    near = [far[i].addressable_data(0) if i in far else x for i, x in enumerate(leaves)]
    return jax.device_get(jax.tree.unflatten(structure, near))


def gathered(value: Any) -> list[Any]:
    """Returns the values of all processes in the order of the processes; ``value`` is the one of this process.

    All processes must call it, and wait for one another. ``value`` is JSON, of which numbers keep their bits.
    """
    return [value] if count() == 1 else _channel().gathered(value)


def from_first(value: Any) -> Any:
    """Returns the value that the first process gave, on all processes.

    All processes must call it; ``value`` is as for `gathered`.
    """
    return gathered(value if is_first() else None)[0]


def check(how: str) -> None:
    """Raises `ConfigError` unless ``how`` is of the form of `FORM`."""
    if how != AUTO:
        _read(how)


def beside(environ: Mapping[str, str]) -> str:
    """Returns a line for a process that a launcher started together with others, if it is to run alone; empty: none.

    Args:
        environ: The environment variables, by which launchers number their processes.
    """
    for launcher, sizes, rank, how in LAUNCHERS:
        count, number = next((environ[size] for size in sizes if size in environ), ""), environ.get(rank, "")
        if count.isdecimal() and number.isdecimal() and int(count) > 1:
            return (
                f"{launcher} tells of {count} processes, of which this one, number {number}, runs alone; "
                f"--processes {how} lets them train together"
            )
    return ""


def begin(how: str, ended: Ended) -> None:
    """Joins the processes of a run. It must be called before JAX computes anything.

    Args:
        how: How the processes find each other, as for `check`.
        ended: ``ended(words, code)`` is called, by any thread, if another process dies or fails later, or does not come
            within `JOIN_SECONDS`.

    Raises:
        ConfigError: If the input is bad.
        ConnectionError: If the processes cannot be joined.
    """
    given: dict[str, Any] = {}
    if how != AUTO:
        given = dict(zip(("coordinator_address", "num_processes", "process_id"), _read(how), strict=True))
    jax.config.update("jax_enable_preemption_service", False)  # the service would catch SIGTERM instead of purerl
    late = f"processes = {how!r}: not all of them have come within {JOIN_SECONDS} seconds"
    waiting = threading.Timer(JOIN_SECONDS, ended, (late, channel.EXIT_LOST))
    waiting.daemon = True
    waiting.start()  # a timeout in JAX would abort this process
    given |= {"initialization_timeout": 2 * JOIN_SECONDS, "heartbeat_timeout_seconds": HEARTBEAT}
    try:
        jax.distributed.initialize(**given)
        jax.devices()
    except (ValueError, TypeError) as error:
        none = "no Slurm, Open MPI or Kubernetes that tells of processes; " if how == AUTO else ""
        raise ConfigError(f"processes = {how!r}: {none}{_line(error)}") from None
    except RuntimeError as error:
        raise ConnectionError(
            f"processes = {how!r}: cannot be reached, or its port is in use: {_line(error)}"
        ) from None
    finally:
        waiting.cancel()
    devices = collections.Counter(device.process_index for device in jax.devices())
    if len({*devices.values()}) > 1:
        raise ConfigError(
            f"processes = {how!r}: must have the same number of devices in each process, not {list(devices.values())}"
        )
    if count() > 1:
        host = given.get("coordinator_address", "").rpartition(":")[0]
        channel.begin(_joined(host.strip("[]"), ended))


def finish() -> None:
    """Waits until all processes are done, and disconnects them.

    A process that waits here has nothing to save. The first signal does not end it, because JAX would abort the others.
    """
    with interrupts.deferred("interrupted: waits for the other processes; a second signal ends all at once"):
        if count() > 1:
            gathered(None)
            _channel().close(0)
            channel.end()
        jax.distributed.shutdown()


def _read(how: str) -> tuple[str, int, int]:
    """Returns the address, the number of processes and the number of this one. Raises `ConfigError`."""
    address, *numbers = how.split(",")
    host, _, port = address.rpartition(":")
    if len(numbers) != 2 or not host or not all(x.isascii() and x.isdecimal() for x in (port, *numbers)):
        raise ConfigError(f"processes = {how!r}: {FORM}")
    size, number = map(int, numbers)
    if not 0 < int(port) < 2**16 or not number < size:
        raise ConfigError(f"processes = {how!r}: the port must be in [1, 65535], and ID in [0, N)")
    return address, size, number


def _channel() -> Channel:
    """Returns the channel of this process; makes one if other code joined the processes."""
    if channel.current() is None:
        channel.begin(_joined("", _end))
    open_channel = channel.current()
    assert open_channel
    return open_channel


def _joined(host: str, ended: Ended) -> Channel:
    """Returns a channel between all processes.

    ``host`` is the address of the first one, empty if unknown; the others learn the rest from JAX.
    """
    here = LOOPBACK[0] if host in LOOPBACK else ""
    if is_first():
        server, address = channel.listen([here] if here else [*filter(None, [host]), *channel.names()], here)
        _broadcast(address)
        return Channel(0, count(), channel.accepted(server, address, count()), ended)
    address = _broadcast(None)
    return Channel(index(), count(), channel.connected(address, index()), ended)


def _broadcast(address: channel.Address | None) -> channel.Address:
    """Returns the address that the first process gives."""
    from jax.experimental import multihost_utils

    text = json.dumps(address).encode() if address else b""
    received = multihost_utils.broadcast_one_to_all(np.frombuffer(text.ljust(MOST_BYTES), np.uint8))
    return channel.Address(*json.loads(bytes(received)))


def _end(words: str, code: int) -> None:
    """Ends this process with a line."""
    print(words, file=sys.stderr)
    channel.leave(code)


def _line(error: BaseException) -> str:
    """Returns the first line of the text of an error."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _same(tree: PyTree) -> PyTree:
    return tree


def _put(x: Any, sharding: Any) -> jax.Array:
    """Does `put` for one array, to devices of several processes."""
    if isinstance(x, jax.Array) and not x.is_fully_addressable:
        return jax.device_put(x, sharding)
    if jax.dtypes.issubdtype(jnp.asarray(x).dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(_put(jax.random.key_data(x), sharding), impl=jax.random.key_impl(x))
    whole = np.asarray(jnp.asarray(x))
    return jax.make_array_from_callback(whole.shape, sharding, lambda part: whole[part])
