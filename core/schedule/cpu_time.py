"""Measures the CPU time of calls without the time of garbage collections that happen during them.

A full collection traverses all objects of the process. In a large process, such as one that uses `LLM` and
other libraries, a collection takes longer than a grammar's allowance, and it can start during any call that
allocates memory.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from threading import get_ident
from time import thread_time
from types import TracebackType
from typing import Self


class CPUTime:
    """Context manager that measures the CPU time of its body in the calling thread.

    Attributes:
        seconds: CPU time of the body; set when the body ends.
    """

    __slots__ = ("_begun", "_collecting_since", "_thread", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self._collecting_since: float | None = None

    def __enter__(self) -> Self:
        self._thread = get_ident()
        gc.callbacks.append(self._note)
        self._begun = thread_time()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.seconds = thread_time() - self._begun
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: Mapping[str, int]) -> None:
        """Exclude the time of a collection in this thread. Python calls this before and after collections."""
        if get_ident() != self._thread:
            return
        if phase == "start":
            self._collecting_since = thread_time()
        elif self._collecting_since is not None:
            self._begun += thread_time() - self._collecting_since
            self._collecting_since = None
