"""Handles the signals that a server receives while it starts and runs.

Of the handled signals, only SIGINT, SIGTERM and SIGQUIT stop the server. The caller decides what each signal
does.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import faulthandler
import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Self

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
"""Signals that stop the server, all in the same way."""

IGNORED = (signal.SIGUSR2, signal.SIGALRM)
"""Signals that are only logged. (Python itself ignores SIGPIPE.)"""

HANDLED = (*STOPPING, *IGNORED, signal.SIGHUP, signal.SIGUSR1)


class Signals:
    """Context manager that receives the signals of one run of a server.

    Signals that arrive before `hand_over` are queued. SIGUSR1 writes the stacks of this process's threads to
    stderr at once, even if the process hangs.

    At the end of the context, the signals in STOPPING end the process at once in any case. If the server has
    stopped by then, they end it with its exit code: a second signal often comes while the interpreter ends.

    Attributes:
        exit_code: exit code of the server that has stopped; None before.
    """

    def __init__(self) -> None:
        self.exit_code: int | None = None
        self._waiting: list[int] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: Callable[[int], None] | None = None

    def __enter__(self) -> Self:
        for number in HANDLED:
            signal.signal(number, self._on_signal)
        atexit.register(self._at_exit)
        faulthandler.enable()
        faulthandler.register(signal.SIGUSR1, chain=True)
        return self

    def __exit__(self, *_: object) -> None:
        faulthandler.unregister(signal.SIGUSR1)
        code = self.exit_code
        at_once = signal.SIG_DFL if code is None else lambda *_: os._exit(code)
        for number in HANDLED:
            signal.signal(number, at_once if number in STOPPING else signal.SIG_IGN)

    def _at_exit(self) -> None:
        """Ignore the signals in STOPPING while the interpreter ends, which restores their default effect."""
        if self.exit_code is not None:
            for number in STOPPING:
                signal.signal(number, signal.SIG_IGN)

    @property
    def is_stopped(self) -> bool:
        """Whether a signal that stops the server is queued."""
        return any(number in STOPPING for number in self._waiting)

    def hand_over(self, handle: Callable[[int], None]) -> None:
        """Handle the queued signals, and let the running event loop handle later ones."""
        self._loop, self._handle = asyncio.get_running_loop(), handle
        waiting, self._waiting = self._waiting, []
        for number in waiting:
            handle(number)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Queue a signal, or pass it to the event loop.

        Must not log: the signal may have interrupted a log call.
        """
        if self._loop is None or self._handle is None:
            self._waiting.append(number)
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed, because the server has stopped
            self._loop.call_soon_threadsafe(self._handle, number)
