"""What signals to a server do, from the first line of its log on: none ends it but those that mean it.

Knows which signals there are; what is done about them is its user's.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import signal
from collections.abc import Callable
from types import FrameType
from typing import Self

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
"""Stop the server, all in the same way."""

IGNORED = (signal.SIGUSR2, signal.SIGALRM)
"""Have no effect but a line in the log. Python itself ignores SIGPIPE."""

HANDLED = (*STOPPING, *IGNORED, signal.SIGHUP, signal.SIGUSR1)


class Signals:
    """The signals of one run of a server, as a context. Those that come before `hand_over` wait for it.

    SIGUSR1 writes the stacks of this process's threads to stderr at once, even while it hangs. As the context ends, the
    signals that stop a server have their usual effect again, so that nothing can keep the process from ending.
    """

    def __init__(self) -> None:
        self._waiting: list[int] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: Callable[[int], None] | None = None

    def __enter__(self) -> Self:
        for number in HANDLED:
            signal.signal(number, self._on_signal)
        faulthandler.enable()
        faulthandler.register(signal.SIGUSR1, chain=True)
        return self

    def __exit__(self, *_: object) -> None:
        faulthandler.unregister(signal.SIGUSR1)
        for number in HANDLED:
            signal.signal(number, signal.SIG_DFL if number in STOPPING else signal.SIG_IGN)

    @property
    def is_stopped(self) -> bool:
        """Whether a signal that stops a server waits."""
        return any(number in STOPPING for number in self._waiting)

    def hand_over(self, handle: Callable[[int], None]) -> None:
        """Have the running event loop handle signals from now on, and first those that wait."""
        self._loop, self._handle = asyncio.get_running_loop(), handle
        waiting, self._waiting = self._waiting, []
        for number in waiting:
            handle(number)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Log nothing here: the signal may have interrupted a line that is being written."""
        if self._loop is None or self._handle is None:
            self._waiting.append(number)
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed: the server has stopped
            self._loop.call_soon_threadsafe(self._handle, number)
