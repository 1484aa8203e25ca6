"""Wakes a thread that polls sockets."""

from __future__ import annotations

import contextlib
import socket


class Waker:
    """Wakes a polling thread, from any other thread. It can be polled like a socket."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def fileno(self) -> int:
        """File descriptor that becomes readable."""
        return self._reader.fileno()

    def ring(self) -> None:
        """Make the descriptor readable."""
        with contextlib.suppress(BlockingIOError):  # it rings already, many times over
            self._writer.send(b"!")

    def stop(self) -> None:
        """Make the descriptor unreadable again."""
        with contextlib.suppress(BlockingIOError):
            while self._reader.recv(4096):
                pass
