"""What an all-reduce costs here: over virtual CPU devices of one process, and over two processes and the loopback.

    python scripts/collectives.py [--repeats 5]

Prints for each the time of one as ``latency + 2 (D - 1) / D bytes / bandwidth``, over D devices in all: a least-squares
line through the medians of ``--repeats`` fresh processes, and the medians themselves. It is the term that
`docs/several-devices.md` adds to what an agent computes.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np
import scales

SIZES = (2**2, 2**10, 2**14, 2**18, 2**20)
"""Numbers of float32 that are summed."""
SECONDS = 0.3
"""How long each size is timed."""
OVER = {"2 devices": (1, 2), "4 devices": (1, 4), "8 devices": (1, 8), "2 processes of 1 device": (2, 1)}
"""Processes, and devices of each."""


def times(processes: int, devices: int, number: int, port: int) -> list[float]:
    """Seconds of an all-reduce of each of `SIZES`, in a loop of a program as a training has them."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    jax.config.update("jax_num_cpu_devices", devices)
    if processes > 1:
        jax.distributed.initialize(f"localhost:{port}", processes, number)
    mesh = Mesh(np.array(jax.devices()), ("data",))
    results = []
    for size in SIZES:

        def add(x: Any, count: Any) -> Any:
            return jax.lax.fori_loop(0, count, lambda i, x: jax.lax.psum(x, "data") * 0.5, x)

        over = {"in_specs": (PartitionSpec("data"), PartitionSpec()), "out_specs": PartitionSpec("data")}
        program = jax.jit(jax.shard_map(add, mesh=mesh, check_vma=False, **over))
        place = NamedSharding(mesh, PartitionSpec("data"))
        ones = np.ones((mesh.size, size), np.float32)
        x = jax.make_array_from_callback(ones.shape, place, ones.__getitem__)
        count, seconds = 1, 0.0
        while seconds < SECONDS:
            jax.block_until_ready(program(x, jnp.int32(count)))
            start = time.perf_counter()
            jax.block_until_ready(program(x, jnp.int32(count)))
            seconds = time.perf_counter() - start
            if processes > 1:  # all must go on alike
                from jax.experimental import multihost_utils

                seconds = float(multihost_utils.broadcast_one_to_all(np.float32(seconds)))
            each, count = seconds / count, count * 4
        results.append(each)
    return results


def measured(processes: int, devices: int) -> list[float]:
    """`times` in fresh processes."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    environment = {
        name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES")
    }
    command = [sys.executable, __file__, "--child", str(processes), str(devices)]
    started = [
        subprocess.Popen(
            [*command, str(k), str(port)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        for k in range(processes)
    ]
    output = [process.communicate(timeout=300)[0] for process in started]
    return list(json.loads(output[0].splitlines()[-1]))


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--repeats", type=int, default=5)
    result.add_argument("--child", nargs=4, type=int)
    scales.add(result, repeats=1)
    return result


def main() -> None:
    """Prints a line for each way."""
    args = parser().parse_args()
    if args.child:
        print(json.dumps(times(*args.child)))
        return
    for name, (processes, devices) in OVER.items():
        runs = [measured(processes, devices) for _ in range(args.repeats)]
        medians = [statistics.median(column) for column in zip(*runs, strict=True)]
        all_devices = processes * devices
        sent = np.array(SIZES) * 4.0 * 2 * (all_devices - 1) / all_devices
        weight = 1 / np.array(medians)  # errors in proportion
        slope, latency = np.polyfit(sent, medians, 1, w=weight)
        text = ", ".join(f"{size:,} B {x * 1e6:,.0f} us" for size, x in zip(np.array(SIZES) * 4, medians, strict=True))
        print(f"{name}: {latency * 1e6:.0f} us + sent / {1 / slope / 1e9:.2f} GB/s ({text})", flush=True)


if __name__ == "__main__":
    main()
