"""How fast a GPU could run a counted program, and how fast it probably would."""

from typing import NamedTuple

from purerl.hardware.census import Census, Loop
from purerl.hardware.gpus import Gpu

LEAST_LAUNCH_SECONDS = 2.5e-6
"""Seconds from the start of one short kernel to the start of the next, at least."""
LAUNCH_SECONDS = 3.6e-6
"""The same as found: PureJaxRL trains one agent on CartPole in 17.2 s (its README, on an A40), in 4.82e6 kernels."""
EFFICIENCY = 0.53
"""Part of its bandwidth that a GPU reaches: PureJaxRL trains 2048 agents at 10.4e6 frames a second (its README, on an
A100 of 40 GB), where the bytes that were counted would allow 19.6e6."""


class Speed(NamedTuple):
    """Seconds of a whole program, at least and as expected, and what takes most of the latter: "launches", "memory" or
    "arithmetic"."""

    least_seconds: float
    seconds: float
    bound: str


def of_loop(loop: Loop, gpu: Gpu) -> Speed:
    """The speed of one loop, all its runs together, without those inside."""
    kernels, moved = loop.runs * loop.kernels, loop.runs * loop.traffic_bytes
    launches, memory = kernels * LAUNCH_SECONDS, moved / (EFFICIENCY * gpu.bandwidth)
    least = max(kernels * LEAST_LAUNCH_SECONDS, moved / gpu.bandwidth)
    return Speed(least, max(launches, memory), "launches" if launches > memory else "memory")


def of_program(census: Census, flops: float, gpu: Gpu, products: float = 0.0) -> Speed:
    """The speed of a program of so many floating-point operations, of which tensor cores compute ``products``, in tf32.

    Its loops run one after another, each as fast as launches and memory let it; all of it no faster than arithmetic
    does. A prediction: no GPU has run the program.
    """
    loops = [of_loop(loop, gpu) for loop in census.loops]
    least, expected = sum(loop.least_seconds for loop in loops), sum(loop.seconds for loop in loops)
    arithmetic = (flops - products) / gpu.flops + products / (gpu.tensor_flops or gpu.flops)
    if arithmetic / EFFICIENCY > expected:
        return Speed(max(least, arithmetic), arithmetic / EFFICIENCY, "arithmetic")
    by_bound = {bound: sum(x.seconds for x in loops if x.bound == bound) for bound in ("launches", "memory")}
    return Speed(max(least, arithmetic), expected, max(by_bound, key=lambda bound: by_bound[bound]))
