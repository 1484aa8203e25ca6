"""Threads that encode and decode long texts, so that they block neither the event loop nor short texts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from llmfw.core.base.cgroup import num_cpus

ResultT = TypeVar("ResultT")

MAX_SHORT = 2**16
"""Largest size of a short text, in characters or tokens.

Work on it takes milliseconds and has its own threads.
"""

LONG = MAX_SHORT + 1
"""Size to pass for work of unknown size that may take seconds: it runs on the threads for long texts."""


class TextThreads:
    """Two thread pools: one for short texts, one for long ones. Threads start on first use."""

    def __init__(self) -> None:
        num_long = max(1, num_cpus() // 4)
        self._short = ThreadPoolExecutor(2, thread_name_prefix="short-texts")
        self._long = ThreadPoolExecutor(num_long, thread_name_prefix="long-texts")

    async def run(self, size: int, work: Callable[..., ResultT], *args: Any) -> ResultT:
        """Run a function in a thread and return its result.

        If cancelled while queued, the function never runs.

        Args:
            size: size of the text, in characters or tokens.
        """
        pool = self._short if size <= MAX_SHORT else self._long
        return await asyncio.get_running_loop().run_in_executor(pool, work, *args)

    def close(self) -> None:
        """Drop queued work, so that the process can exit without waiting for it."""
        for pool in (self._short, self._long):
            pool.shutdown(wait=False, cancel_futures=True)
