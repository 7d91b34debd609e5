"""The CPU's vectors: XLA uses the widest where that is faster."""

import os

import pytest

from purerl import use_one_thread
from purerl.population import devices


@pytest.mark.parametrize(
    ("cpu", "given", "flags"),
    [
        ("flags : fma avx2 avx512f", "", "--xla_cpu_prefer_vector_width=512"),
        ("flags : fma avx2 avx512f", "--xla_a=1", "--xla_a=1 --xla_cpu_prefer_vector_width=512"),
        ("flags : fma avx2 avx512f", "--xla_cpu_prefer_vector_width=256", "--xla_cpu_prefer_vector_width=256"),
        ("flags : fma avx2", "", ""),
        (None, "", ""),
    ],
    ids=["AVX-512", "with other flags", "set by the user", "AVX2", "unknown"],
)
def test_vectors_are_the_widest(cpu, given, flags, monkeypatch, tmp_path):
    if cpu:
        (tmp_path / "cpuinfo").write_text(f"processor : 0\n{cpu}\n")
    monkeypatch.setattr(devices, "CPU_FACTS", tmp_path / "cpuinfo")
    monkeypatch.setenv("XLA_FLAGS", given)
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "8")  # as this process has
    use_one_thread()
    assert os.environ["XLA_FLAGS"] == flags
