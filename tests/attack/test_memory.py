"""Memory that a process takes after its start counts, and the pages of its pool do not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from .memory import ServerMemory

SIZE = 200 * 2**20
PROGRAM = f"""
import mmap
kept = [mmap.mmap(-1, {SIZE}, mmap.MAP_PRIVATE)]
print(flush=True)
while line := input():
    if line == "map":
        kept.append(mmap.mmap(-1, {SIZE}, mmap.MAP_PRIVATE))
    for start in range(0, {SIZE}, 4096):
        kept[-1][start] = 1
    print(flush=True)
"""


@pytest.fixture
def process() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def grown(process: subprocess.Popen[str], line: str) -> int:
    """Return by how many bytes a process grows when it does what a line says."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    memory = ServerMemory([process.pid])
    before = memory.resident_bytes()
    process.stdin.write(line + "\n")
    process.stdin.flush()
    process.stdout.readline()
    return memory.resident_bytes() - before


def test_pages_of_the_pool_do_not_count(process: subprocess.Popen[str]) -> None:
    assert abs(grown(process, "touch")) < SIZE // 10


def test_what_is_mapped_later_counts(process: subprocess.Popen[str]) -> None:
    assert abs(grown(process, "map") - SIZE) < SIZE // 10
