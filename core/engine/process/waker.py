"""Wakes a thread that polls sockets, from any other thread."""

from __future__ import annotations

import contextlib
import socket


class Waker:
    """An object that can be polled like a socket, and that any thread can make readable to wake the polling
    thread."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def fileno(self) -> int:
        """File descriptor that `ring` makes readable."""
        return self._reader.fileno()

    def ring(self) -> None:
        """Make the descriptor readable."""
        with contextlib.suppress(BlockingIOError):  # the buffer is full: it is readable already
            self._writer.send(b"!")

    def stop(self) -> None:
        """Make the descriptor unreadable again."""
        with contextlib.suppress(BlockingIOError):
            while self._reader.recv(4096):
                pass
