"""Descriptions of NVIDIA GPUs, as facts with their source.

Multiprocessors, clock (boost), memory, bandwidth and the rate of tensor cores are those of NVIDIA's data sheets and
architecture papers: H200 and H100 SXM ("NVIDIA H100 Tensor Core GPU Architecture", 2022; H200 data sheet, 2023), A100
SXM ("NVIDIA A100 Tensor Core GPU Architecture", 2020), A40 ("NVIDIA Ampere GA102 GPU Architecture", 2021), L4, L40S and
RTX 4090 ("NVIDIA Ada GPU Architecture", 2022, and data sheets), T4 ("NVIDIA Turing GPU Architecture", 2018). Limits of
a block and of a multiprocessor are those of the "CUDA C++ Programming Guide", table "Technical Specifications per
Compute Capability".
"""

from typing import NamedTuple

GIB = 2**30


class Capability(NamedTuple):
    """The properties that GPUs of one compute capability share.

    ``fp32_units`` and ``threads`` are those of a multiprocessor. ``shared_bytes`` is the most shared memory of a
    multiprocessor, ``block_shared_bytes`` that of a block.
    """

    major: int
    minor: int
    fp32_units: int
    threads: int
    shared_bytes: int
    block_shared_bytes: int


CAPABILITIES = {
    (7, 5): Capability(7, 5, 64, 1024, 64 * 1024, 64 * 1024),
    (8, 0): Capability(8, 0, 64, 2048, 164 * 1024, 163 * 1024),
    (8, 6): Capability(8, 6, 128, 1536, 100 * 1024, 99 * 1024),
    (8, 9): Capability(8, 9, 128, 1536, 100 * 1024, 99 * 1024),
    (9, 0): Capability(9, 0, 128, 2048, 228 * 1024, 227 * 1024),
}


class Gpu(NamedTuple):
    """One model of GPU.

    ``clock`` is in GHz, ``bandwidth`` in bytes a second. ``tensor_flops`` is the most operations a second of dense
    products in tf32, 0 without tensor cores for them. The rest is in bytes or counts.
    """

    name: str
    capability: Capability
    multiprocessors: int
    clock: float
    memory_bytes: int
    bandwidth: float
    l2_bytes: int
    tensor_flops: float

    @property
    def flops(self) -> float:
        """The most float32 operations a second outside tensor cores: two for each unit and cycle."""
        return 2e9 * self.multiprocessors * self.capability.fp32_units * self.clock


GPUS = {
    "h200": Gpu("NVIDIA H200", CAPABILITIES[9, 0], 132, 1.98, 141 * 10**9, 4.8e12, 50 * 2**20, 494.7e12),
    "h100": Gpu("NVIDIA H100 80GB HBM3", CAPABILITIES[9, 0], 132, 1.98, 80 * GIB, 3.35e12, 50 * 2**20, 494.7e12),
    "a100": Gpu("NVIDIA A100-SXM4-80GB", CAPABILITIES[8, 0], 108, 1.41, 80 * GIB, 2.039e12, 40 * 2**20, 156e12),
    "a100-40gb": Gpu("NVIDIA A100-SXM4-40GB", CAPABILITIES[8, 0], 108, 1.41, 40 * GIB, 1.555e12, 40 * 2**20, 156e12),
    "a40": Gpu("NVIDIA A40", CAPABILITIES[8, 6], 84, 1.74, 48 * GIB, 0.696e12, 6 * 2**20, 74.8e12),
    "l40s": Gpu("NVIDIA L40S", CAPABILITIES[8, 9], 142, 2.52, 48 * GIB, 0.864e12, 96 * 2**20, 183.2e12),
    "l4": Gpu("NVIDIA L4", CAPABILITIES[8, 9], 58, 2.04, 24 * GIB, 0.3e12, 48 * 2**20, 60e12),
    "rtx4090": Gpu("NVIDIA GeForce RTX 4090", CAPABILITIES[8, 9], 128, 2.52, 24 * GIB, 1.008e12, 72 * 2**20, 82.6e12),
    "t4": Gpu("Tesla T4", CAPABILITIES[7, 5], 40, 1.59, 16 * GIB, 0.32e12, 4 * 2**20, 0.0),
}
"""GPUs by the name that a user gives."""


def description(gpu: Gpu) -> str:
    """Returns a GPU as XLA's compiler reads it: the text of a ``GpuTargetConfigProto``."""
    about = gpu.capability
    fields = {
        "threads_per_block_limit": 1024,
        "threads_per_warp": 32,
        "shared_memory_per_block": 48 * 1024,
        "shared_memory_per_core": about.shared_bytes,
        "threads_per_core_limit": about.threads,
        "core_count": gpu.multiprocessors,
        "fpus_per_core": about.fp32_units,
        "block_dim_limit_x": 2**31 - 1,
        "block_dim_limit_y": 65535,
        "block_dim_limit_z": 65535,
        "memory_bandwidth": int(gpu.bandwidth),
        "l2_cache_size": gpu.l2_bytes,
        "clock_rate_ghz": gpu.clock,
        "device_memory_size": gpu.memory_bytes,
        "shared_memory_per_block_optin": about.block_shared_bytes,
        "registers_per_core_limit": 65536,
        "registers_per_block_limit": 65536,
    }
    lines = "\n".join(f"  {name}: {value}" for name, value in fields.items())
    return (
        "gpu_device_info {\n"
        f"  cuda_compute_capability {{ major: {about.major} minor: {about.minor} }}\n{lines}\n}}\n"
        'platform_name: "CUDA"\n'
        "dnn_version_info { major: 9 minor: 3 }\n"
        "runtime_version { major: 12 minor: 8 }\n"
        f'device_description_str: "{gpu.name}"\n'
    )
