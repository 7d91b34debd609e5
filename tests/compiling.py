"""How the tests compile: as fast as XLA can, but for those that claim something of programs as users have them."""

import os
from typing import Any

QUICKLY = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
    "xla_llvm_disable_expensive_passes": True,
}
"""Compiles in about a quarter of the time, to programs that run more slowly."""
AS_SHIPPED: dict[str, Any] = {
    "xla_backend_optimization_level": 3,
    "xla_cpu_use_fusion_emitters": True,
    "xla_cpu_parallel_codegen_split_count": 32,
    "xla_llvm_disable_expensive_passes": False,
}
"""What the same options are where nobody sets them."""


def flags() -> str:
    """``XLA_FLAGS`` for processes that compile quickly. Those that a person has set go before."""
    ours = [f"--{name}={str(value).lower()}" for name, value in QUICKLY.items()]
    return " ".join([*ours, *os.environ.get("XLA_FLAGS", "").split()])


def shipped_environment() -> dict[str, str]:
    """The environment variables for a process that compiles as a user's does."""
    return {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
