"""How fast a GPU could run a counted program, and how fast it and a CPU probably would."""

from typing import NamedTuple

from purerl.hardware.census import Census, Loop
from purerl.hardware.gpus import Gpu

LEAST_LAUNCH_SECONDS = 1e-6
"""The least seconds from the start of one short kernel to the start of the next: an assumption, a little less than any
that was measured."""
LAUNCH_SECONDS = 1.3e-6
"""The expected seconds from the start of one short kernel to the start of the next.

purerl trains one agent on CartPole in 2.5 s, with 1.95e6 kernels in its census (one run on an H200, jax 0.11.2). With
older versions and GPUs it was more: PureJaxRL's README has 17.2 s on an A40, for 4.82e6 kernels.
"""
EFFICIENCY = 0.53
"""The part of its bandwidth that a GPU reaches.

PureJaxRL trains 2048 agents at 10.4e6 frames a second (its README, on an A100 of 40 GB), where the bytes that were
counted would allow 19.6e6.
"""


CPU_KERNEL_SECONDS = 7.1e-8
CPU_BANDWIDTH = 88e9
CPU_FLOPS = 81e9
"""What a core of a CPU takes: seconds of a kernel beside its work; bytes (mostly of caches) and operations a second.

They are fitted to the 19 trainings of scripts/estimates.py, measured on two cores of an AMD EPYC with jax 0.10.2; the
fit is 0.56 to 1.42 times what was measured.
"""


class Speed(NamedTuple):
    """The least and the expected seconds of a program, and what bounds the latter.

    ``bound`` is what takes most of the expected seconds: "launches", "memory" or "arithmetic".
    """

    least_seconds: float
    seconds: float
    bound: str


def of_loop(loop: Loop, gpu: Gpu) -> Speed:
    """Predicts the speed of one loop, all its runs together, without the loops inside."""
    kernels, moved = loop.runs * loop.kernels, loop.runs * loop.traffic_bytes
    launches, memory = kernels * LAUNCH_SECONDS, moved / (EFFICIENCY * gpu.bandwidth)
    least = max(kernels * LEAST_LAUNCH_SECONDS, moved / gpu.bandwidth)
    return Speed(least, max(launches, memory), "launches" if launches > memory else "memory")


def of_program(census: Census, flops: float, gpu: Gpu, products: float = 0.0) -> Speed:
    """Predicts the speed of a program without running it.

    The loops run one after another, each as fast as launches and memory let it. The whole is no faster than arithmetic
    allows.

    Args:
        census: The kernels and bytes of the program.
        flops: The number of its floating-point operations.
        gpu: The model of GPU.
        products: The number of these that tensor cores compute, in tf32.
    """
    loops = [of_loop(loop, gpu) for loop in census.loops]
    least, expected = sum(loop.least_seconds for loop in loops), sum(loop.seconds for loop in loops)
    arithmetic = (flops - products) / gpu.flops + products / (gpu.tensor_flops or gpu.flops)
    if arithmetic / EFFICIENCY > expected:
        return Speed(max(least, arithmetic), arithmetic / EFFICIENCY, "arithmetic")
    by_bound = {bound: sum(x.seconds for x in loops if x.bound == bound) for bound in ("launches", "memory")}
    return Speed(max(least, arithmetic), expected, max(by_bound, key=lambda bound: by_bound[bound]))


def on_cpu(census: Census, flops: float = 0.0) -> float:
    """Estimates the seconds of a program on a core of a CPU: the sum of what kernels, bytes and arithmetic take.

    Args:
        census: The kernels and bytes of the program, compiled for a CPU.
        flops: The number of its floating-point operations; 0: they are not known, and the estimate is low.
    """
    return census.kernels * CPU_KERNEL_SECONDS + census.traffic_bytes / CPU_BANDWIDTH + flops / CPU_FLOPS
