"""Measures the resources that a store takes: time of the event loop, memory and disk space."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

MAX_STOP_S = 0.1
"""Seconds for which one call of a store may stop the event loop, on which all requests are answered."""


async def assert_loop_stays_free(use: Callable[[], Awaitable[Any]]) -> None:
    """Assert that no part of `use` stops the event loop for longer than MAX_STOP_S in each of three runs.

    The best of three runs counts, because a busy machine stops the loop, too.
    """
    longest = [await _longest_stop_s(use()) for _ in range(3)]
    assert min(longest) <= MAX_STOP_S, "the store's methods block the event loop; do their work in a thread"


async def _longest_stop_s(use: Awaitable[Any]) -> float:
    """Await `use`; return the longest time, in seconds, in which the event loop ran nothing else."""
    longest, last = 0.0, time.perf_counter()

    def note() -> None:
        nonlocal longest, last
        now = time.perf_counter()
        longest, last = max(longest, now - last), now

    async def tick() -> None:
        while True:
            note()
            await asyncio.sleep(0.001)

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0)
    try:
        await use
        note()
    finally:
        ticking.cancel()
    return longest


def folder_bytes(folder: Path) -> int:
    """Return the size of all files in a folder."""
    sizes = 0
    for file in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # a store may be removing it
            sizes += file.stat().st_size
    return sizes


@contextlib.contextmanager
def peak_memory() -> Iterator[list[int]]:
    """Context manager that appends the peak memory of Python objects, in bytes, to the list at the end."""
    peaks: list[int] = []
    tracemalloc.start()
    try:
        yield peaks
    finally:
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()


def num_open_files() -> int:
    """Return the number of open files of this process; 0 if the system does not list them."""
    with contextlib.suppress(OSError):
        return len(os.listdir("/proc/self/fd"))
    return 0


def num_mapped_files(folder: Path) -> int:
    """Return the number of mappings of a folder's files in this process; 0 if it is unknown."""
    with contextlib.suppress(OSError):
        return sum(f"{folder}/" in line for line in Path("/proc/self/maps").read_text().splitlines())
    return 0


def bytes_read() -> int:
    """Return the bytes that this process has read from files; 0 if the system does not count them."""
    return _number("/proc/self/io", "rchar:")


def anonymous_bytes() -> int:
    """Return the memory of this process that maps no files, in bytes; 0 if the system does not report it.

    Does not count freed memory. The C library keeps freed memory for later, and could hide a loader that
    keeps tensors.
    """
    with contextlib.suppress(AttributeError, OSError):  # other C libraries do not have it
        ctypes.CDLL(None).malloc_trim(0)
    return _number("/proc/self/status", "RssAnon:") * 1024


def _number(file: str, label: str) -> int:
    with contextlib.suppress(OSError):
        for line in Path(file).read_text().splitlines():
            if line.startswith(label):
                return int(line.split()[1])
    return 0


def contents_of(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the size of each file of a folder, and when it was last changed."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns) for path in found}
