"""Memory of large requests goes back to the system."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from llmfw.api.server.memory import Memory

SPENDER = """
import asyncio
from pathlib import Path
from llmfw.api.server import memory

def resident_mb():
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096 / 2**20

async def main():
    memory.QUIET_S = 0.2
    allocator = memory.Memory()
    {settle}
    before = resident_mb()
    blocks = [b"x" * {size} for _ in range(200 * 2**20 // {size})]
    pin = blocks[-1]  # at the top of the heap
    spent = resident_mb() - before
    del blocks
    {used}
    {used}
    await asyncio.sleep(0.1)
    at_once = resident_mb() - before
    await asyncio.sleep(0.4)
    print(spent, at_once, resident_mb() - before)

asyncio.run(main())
"""

pytestmark = pytest.mark.skipif(Memory()._libc is None, reason="needs glibc")


def test_memory_is_returned_after_large_requests(fresh_python: Callable[..., str]) -> None:
    code = SPENDER.format(settle="pass", size=10_000, used="allocator.used()")
    spent, at_once, kept = map(float, fresh_python(code).split())
    assert spent > 190
    assert at_once > 150
    assert kept < 20


def test_large_blocks_are_returned_to_the_system(fresh_python: Callable[..., str]) -> None:
    code = SPENDER.format(settle="bytes(30 * 2**20); allocator.settle()", size=2**20, used="pass")
    spent, at_once, _ = map(float, fresh_python(code).split())
    assert spent > 190
    assert at_once < 20
