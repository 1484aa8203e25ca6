"""How much memory this process has."""

from __future__ import annotations


def resident_bytes() -> int:
    """Return the memory of this process, 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096
    except OSError:
        return 0
