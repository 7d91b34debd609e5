"""What the control groups of a process (cgroup v1 and v2), by which containers and job schedulers work, let it use."""

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path

OWN = Path("/proc/self/cgroup")
"""The file that names the groups of this process."""
ROOT = Path("/sys/fs/cgroup")
"""Where the groups are mounted."""


def cpus() -> float:
    """Returns how many CPUs the process may use at a time, which may be a fraction; infinity: all."""
    most = math.inf
    for folder in _folders("cpu"):
        quota, period = [*_words(folder / "cpu.max"), "", ""][:2]
        if not quota:
            quota, period = (" ".join(_words(folder / f"cpu.cfs_{name}_us")) for name in ("quota", "period"))
        with contextlib.suppress(ValueError):  # "max", or nothing
            most = min(most, int(quota) / int(period) if int(quota) > 0 and int(period) > 0 else math.inf)
    return most


def free_bytes() -> float:
    """Returns how much memory the process may still allocate before a group is full; infinity: there is no limit."""
    free = math.inf
    for folder in _folders("memory"):
        for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            with contextlib.suppress(ValueError):
                free = min(free, int(" ".join(_words(folder / limit))) - int(" ".join(_words(folder / used))))
    return free


def _folders(controller: str) -> Iterator[Path]:
    """Yields the folders of the groups of this process, and of those around them, that may have limits of a kind.

    A container may not see its own group under the name that it has outside; then those around it count.
    """
    try:
        lines = OWN.read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, names, path = [*line.split(":", 2), "", ""][:3]
        if names and controller not in names.split(","):
            continue
        for mount in (ROOT / controller, ROOT / names) if names else (ROOT, ROOT / "unified"):
            inner = mount / path.lstrip("/")
            yield from (each for each in (inner, *inner.parents) if each.is_relative_to(mount))


def _words(path: Path) -> list[str]:
    """Returns the words of a small file; none if it cannot be read."""
    try:
        return path.read_text().split()
    except (OSError, ValueError):
        return []
