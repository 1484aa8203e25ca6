"""Limits on the memory and the CPU time that one piece of work may take in this process."""

from __future__ import annotations

import contextlib
import resource
import sys
from collections.abc import Iterator
from time import process_time


@contextlib.contextmanager
def limited(cpu_s: float, memory_mb: int) -> Iterator[None]:
    """Limit this process's memory and CPU time until the block ends.

    Allocations beyond the limit fail, which Python reports by MemoryError. A process that uses too much CPU
    time is ended by SIGXCPU; this is a second barrier, for the case that its parent does not enforce a
    deadline. Memory is limited on Linux only.

    Args:
        cpu_s: CPU time in seconds. The process is ended at most 3 seconds later.
        memory_mb: private memory in addition to the memory that the process has now, in MiB.
    """
    set_soft(resource.RLIMIT_CPU, int(process_time() + cpu_s) + 2)
    if sys.platform == "linux":
        with open("/proc/self/status", encoding="ascii") as file:
            used = next(int(line.split()[1]) for line in file if line.startswith("VmData:"))
        set_soft(resource.RLIMIT_DATA, used * 1024 + memory_mb * 2**20)
    try:
        yield
    finally:
        set_soft(resource.RLIMIT_DATA, None)


def set_soft(kind: int, value: int | None) -> None:
    """Set the soft limit of a resource; None: set it to the hard limit. The hard limit does not change."""
    _, hard = resource.getrlimit(kind)
    if value is None or hard != resource.RLIM_INFINITY:
        value = hard if value is None else min(value, hard)
    resource.setrlimit(kind, (value, hard))
