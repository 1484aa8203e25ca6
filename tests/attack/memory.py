"""Resident memory of a server, without the pool of keys and values: that fills with prefixes of prompts by design."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

PAGE = os.sysconf("SC_PAGESIZE")
MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw\S+ \S+ \S+ 0\s*$")
"""Matches memory of a process that is writable and has no name, as the heap and mapped files have."""
POOL_BYTES = 32 * 2**20
"""Smallest size of a mapping that counts as part of the pool. The demo model has at least 60 MiB for each layer's keys."""
PRESENT = np.uint64(1 << 63)
"""Bit of an entry of /proc/PID/pagemap that says that the page is resident."""


class ServerMemory:
    """Measures what processes have taken since they started to serve.

    Args:
        pids: ids of the processes. What each has mapped in large pieces by now is its pool, and not counted; what it
            maps later is counted.
    """

    def __init__(self, pids: Sequence[int]) -> None:
        self._pools = {pid: _large_mappings(pid) for pid in pids}

    def resident_bytes(self) -> int:
        """Return the resident memory of all the processes; pages that they share are counted in each."""
        return (
            sum(_resident_pages(pid) - _present_pages(pid, pool) for pid, pool in self._pools.items()) * PAGE
        )


def _large_mappings(pid: int) -> list[range]:
    """Return the addresses of a process's large mappings."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    found = (MAPPING.match(line) for line in lines)
    ranges = [range(int(each[1], 16), int(each[2], 16)) for each in found if each]
    return [each for each in ranges if len(each) >= POOL_BYTES]


def _resident_pages(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1])


def _present_pages(pid: int, places: Sequence[range]) -> int:
    """Return how many pages at these addresses are resident."""
    total = 0
    with Path(f"/proc/{pid}/pagemap").open("rb") as pagemap:
        for place in places:
            pagemap.seek(place.start // PAGE * 8)
            entries = np.frombuffer(pagemap.read(len(place) // PAGE * 8), np.uint64)
            total += int(np.count_nonzero(entries & PRESENT))
    return total
