"""Measures the memory of this process."""

from __future__ import annotations

import os


def resident_bytes() -> int:
    """Return the resident memory of this process, or 0 if the system does not report it."""
    try:
        # Not `open`, whose file could stay open if the recursion ends within it: templates recurse as deep as they may.
        file = os.open("/proc/self/statm", os.O_RDONLY)
    except OSError:
        return 0
    try:
        return int(os.read(file, 200).split()[1]) * 4096
    finally:
        os.close(file)
