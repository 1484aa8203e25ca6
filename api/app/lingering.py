"""Ends a process whose event loop cannot be closed, because a task ignores its cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Iterator

from llmfw.api.background.tasks import innermost

logger = logging.getLogger(__name__)

LINGER_S = 5.0
"""Seconds that tasks get to end after the server has stopped and they are cancelled."""


class Lingering:
    """Watches the tasks that are left when the work of an event loop is done."""

    def __init__(self, linger_s: float = LINGER_S) -> None:
        self._linger_s = linger_s
        self._closed = threading.Event()

    @contextlib.contextmanager
    def until_closed(self) -> Iterator[None]:
        """Stop watching at the end of the context, in which the event loop runs and is closed."""
        try:
            yield
        finally:
            self._closed.set()

    def watch(self, exit_code: int) -> None:
        """End the process with this exit code unless the running event loop is closed within `linger_s` seconds.

        The last task of the loop calls this at its end, when no work can be lost any more.
        """
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._end, args=(loop, exit_code), daemon=True).start()

    def _end(self, loop: asyncio.AbstractEventLoop, exit_code: int) -> None:
        if self._closed.wait(self._linger_s):
            return
        names = sorted({innermost(task) for task in asyncio.all_tasks(loop)})
        logger.error(
            "%g s after the server has stopped, code that it has cancelled still runs: %s; the process ends without it",
            self._linger_s,
            ", ".join(names) or "in a thread",
        )
        for handler in logging.getLogger().handlers:
            handler.flush()
        os._exit(exit_code)
