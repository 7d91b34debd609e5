"""Limits of control groups, read from files as Linux has them."""

import math
import os
import re

import jax
import pytest

from purerl.hosts import container, processes
from purerl.population import devices

V1_NONE = 2**63 - 4096
"""What version 1 has for no limit of memory."""


@pytest.fixture
def group(tmp_path, monkeypatch):
    """Writes the groups of the process, and files of groups by path."""
    monkeypatch.setattr(container, "OWN", tmp_path / "own")
    monkeypatch.setattr(container, "ROOT", tmp_path / "mounted")  # files of Linux, written here

    def write(own, **files):
        (tmp_path / "own").write_text(own)
        for path, text in files.items():
            place = tmp_path / "mounted" / re.sub("__", "/", path)
            place.parent.mkdir(parents=True, exist_ok=True)
            (place.parent / place.name.replace("_dot_", ".")).write_text(f"{text}\n")

    return write


@pytest.mark.parametrize(
    ("own", "files", "cpus"),
    [
        ("0::/\n", {"cpu_dot_max": "max 100000"}, math.inf),
        ("0::/\n", {"cpu_dot_max": "150000 100000"}, 1.5),
        ("0::/a/b\n", {"a__cpu_dot_max": "100000 100000", "a__b__cpu_dot_max": "300000 100000"}, 1),
        ("0::/of/the/machine\n", {"cpu_dot_max": "50000 100000"}, 0.5),
        ("1:cpu:/x\n", {"cpu__x__cpu_dot_cfs_quota_us": "-1", "cpu__x__cpu_dot_cfs_period_us": "100000"}, math.inf),
        (
            "3:cpu,cpuacct:/x\n2:memory:/y\n",
            {"cpu,cpuacct__cpu_dot_cfs_quota_us": "200000", "cpu,cpuacct__cpu_dot_cfs_period_us": "100000"},
            2,
        ),
        ("", {"cpu_dot_max": "100000 100000"}, math.inf),
        ("0::/\n", {"cpu_dot_max": "?"}, math.inf),
    ],
)
def test_shares_of_cpus(own, files, cpus, group):
    group(own, **files)
    assert container.cpus() == cpus
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert processes.cores() == max(1, min(there, math.ceil(min(cpus, there))))


@pytest.mark.parametrize(
    ("own", "files", "free"),
    [
        ("0::/\n", {"memory_dot_max": "max", "memory_dot_current": "10"}, math.inf),
        ("0::/a\n", {"a__memory_dot_max": "3000", "a__memory_dot_current": "1000", "memory_dot_max": "9000"}, 2000),
        (
            "4:memory:/x\n",
            {"memory__x__memory_dot_limit_in_bytes": "5000", "memory__x__memory_dot_usage_in_bytes": "1000",
             "memory__memory_dot_limit_in_bytes": V1_NONE, "memory__memory_dot_usage_in_bytes": "1000"},
            4000,
        ),
    ],
)  # fmt: skip
def test_limits_of_memory(own, files, free, group):
    group(own, **files)
    assert container.free_bytes() == free
    if free < math.inf:
        assert devices.available_bytes(jax.devices("cpu")[:2]) == free // 2


def test_without_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(container, "OWN", tmp_path / "none")
    assert container.cpus() == container.free_bytes() == math.inf
