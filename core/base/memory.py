"""Measures the memory of this process."""

from __future__ import annotations

import os


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes; 0 if the system does not report it."""
    try:
        # `open` could leak its file if it hit the recursion limit, which templates may reach.
        file = os.open("/proc/self/statm", os.O_RDONLY)
    except OSError:
        return 0
    try:
        return int(os.read(file, 200).split()[1]) * 4096
    finally:
        os.close(file)
