"""Reads the memory and CPU limits of this process from its Linux control groups, as containers set them.

Supports both versions of control groups, and includes the limits of parent groups. Reports no limit without
control groups and on systems other than Linux.

Source: Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

V1_MEMORY, V1_CPU = "memory", "cpu"
NO_LIMIT = 2**60
"""Bytes from which a limit counts as "no limit": version 1 writes that as a number near 2**63."""


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """A limit on memory, and how much of it is available.

    Attributes:
        total: maximum memory of all processes of the group together, in bytes.
        available: unused memory within the limit, in bytes, including cached files that can be dropped.
    """

    total: int
    available: int


def memory_limit(root: Path = Path("/")) -> MemoryLimit | None:
    """Return the smallest limit and the smallest available memory among this process's groups.

    Returns None if no group has a limit.

    Args:
        root: folder that holds proc and sys.
    """
    limits = [limit for group in _groups(root, V1_MEMORY) if (limit := _memory_of(group))]
    if not limits:
        return None
    return MemoryLimit(min(each.total for each in limits), min(each.available for each in limits))


def num_cpus(root: Path = Path("/")) -> int:
    """Return how many CPUs this process may use at once, at least 1.

    This is the smaller of the number of CPUs that its threads may run on (CPU affinity) and the CPU limit of
    its control groups, rounded up.

    Args:
        root: folder that holds proc and sys.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    shares = [share for group in _groups(root, V1_CPU) if (share := _cpus_of(group))]
    return max(1, min(allowed, *(math.ceil(share) for share in shares))) if shares else allowed


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's cgroup and of its parent groups, for versions 1 and 2.

    The last folder of a hierarchy is its top, such as /sys/fs/cgroup. In a container, /proc may show the
    group's path on the host, while the group's files are at the top. So folders that do not exist are
    skipped, and the top is yielded even if the group's own folder does not exist.
    """
    for line in _lines(root / "proc/self/cgroup"):
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controller in controllers.split(","):
            tops = [root / "sys/fs/cgroup" / controllers, root / "sys/fs/cgroup" / controller]
        elif number == "0" and not controllers:
            tops = [root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified"]
        else:
            continue
        inside = PurePosixPath(path.lstrip("/"))
        if ".." in inside.parts:  # the group is outside of this namespace
            inside = PurePosixPath()
        for top in dict.fromkeys(tops):
            yield from (top / each for each in (inside, *inside.parents) if (top / each).is_dir())


def _memory_of(group: Path) -> MemoryLimit | None:
    """Return the memory limit of one group, or None if the group has no limit. Ignores parent groups."""
    if (group / "memory.limit_in_bytes").exists():
        limits, used = [_number(group / "memory.limit_in_bytes")], _number(group / "memory.usage_in_bytes")
        cached = "total_inactive_file"
    else:
        limits = [_number(group / "memory.max"), _number(group / "memory.high")]
        used, cached = _number(group / "memory.current"), "inactive_file"
    known = [limit for limit in limits if limit is not None and limit < NO_LIMIT]
    if not known:
        return None
    stat = dict(line.split(" ", 1) for line in _lines(group / "memory.stat") if " " in line)
    droppable = int(stat[cached]) if stat.get(cached, "").isdigit() else 0
    total = min(known)
    return MemoryLimit(total, max(0, total - max(0, (used or 0) - droppable)))


def _cpus_of(group: Path) -> float | None:
    """Return the CPU limit of one group as a number of CPUs, or None if the group has no limit.

    Ignores parent groups.
    """
    if (group / "cpu.cfs_quota_us").exists():
        quota, period = _number(group / "cpu.cfs_quota_us"), _number(group / "cpu.cfs_period_us")
    else:
        words = next(iter(_lines(group / "cpu.max")), "").split()
        quota, period = ([int(word) if word.isdigit() else None for word in words] + [None, None])[:2]
    return quota / period if quota and period and quota > 0 else None


def _number(file: Path) -> int | None:
    """Return the number in a file; None if the file cannot be read or holds "max" or -1."""
    text = next(iter(_lines(file)), "")
    return int(text) if text.isdigit() else None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
