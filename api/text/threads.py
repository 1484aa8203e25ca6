"""Threads for work on texts, so that neither the event loop nor other work has to wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from llmfw.core.base.cgroup import num_cpus

ResultT = TypeVar("ResultT")

MAX_SHORT = 2**16
"""Work on texts up to this size (characters or tokens) takes milliseconds; it does not queue behind larger work."""

LONG = MAX_SHORT + 1
"""A size of work that may take seconds."""


class TextThreads:
    """Two kinds of threads: for short texts, and for long ones. They start when they are first needed."""

    def __init__(self) -> None:
        num_long = max(1, num_cpus() // 4)
        self._short = ThreadPoolExecutor(2, thread_name_prefix="short-texts")
        self._long = ThreadPoolExecutor(num_long, thread_name_prefix="long-texts")

    async def run(self, size: int, work: Callable[..., ResultT], *args: Any) -> ResultT:
        """Return what a function returns. If this is cancelled while the work still queues, it never begins.

        Args:
            size: of the text, in characters or tokens.
        """
        pool = self._short if size <= MAX_SHORT else self._long
        return await asyncio.get_running_loop().run_in_executor(pool, work, *args)

    def close(self) -> None:
        """Drop the work that has not begun, so that the process need not wait for it."""
        for pool in (self._short, self._long):
            pool.shutdown(wait=False, cancel_futures=True)
