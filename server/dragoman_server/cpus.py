"""How many CPUs this process may use: its affinity and its container's quota, never the host's cores."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

# Layers of a few hundred units don't feed more threads; a bigger model's operator sets --threads.
MAX_DEFAULT_THREADS = 4


def default_num_threads(num_models: int, cpus: int) -> int:
    """Returns torch threads for each of ``num_models`` engines; one CPU is left to gRPC where there are several."""
    return min(MAX_DEFAULT_THREADS, max(1, (cpus - 1) // num_models))


def available_cpus(root: Path = Path("/")) -> int:
    """Returns the whole CPUs that this process may use at once, at least 1.

    Args:
        root: Where ``proc`` and ``sys`` are.
    """
    return max(1, min([len(os.sched_getaffinity(0)), *(math.floor(quota) for quota in _quotas(root))]))


def _quotas(root: Path) -> Iterator[float]:
    """Yields the CPU limits of every control group above this process, in CPUs."""
    for directory in _cgroup_directories(root):
        quota = _read_words(directory / "cpu.max")  # version 2: "max 100000" or "50000 100000"
        if len(quota) == 2 and quota[0] != "max":
            yield int(quota[0]) / int(quota[1])
        quota = _read_words(directory / "cpu.cfs_quota_us")  # version 1: -1 is no limit
        period = _read_words(directory / "cpu.cfs_period_us")
        if quota and period and int(quota[0]) > 0:
            yield int(quota[0]) / int(period[0])


def _cgroup_directories(root: Path) -> Iterator[Path]:
    mount = root / "sys/fs/cgroup"
    for line in _read_text(root / "proc/self/cgroup").splitlines():
        hierarchy, controllers, path = line.split(":", 2)
        if hierarchy == "0":
            base = mount
        elif "cpu" in controllers.split(","):
            base = mount / "cpu"
        else:
            continue
        # Within a container the path may be the host's; then only the mount itself, the group's own, is there.
        relative = PurePosixPath(path.lstrip("/"))
        for parent in (relative, *relative.parents):
            yield base / parent


def _read_words(path: Path) -> list[str]:
    return _read_text(path).split()


def _read_text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
