"""Sockets of the engine process. Reads clients' messages between two steps, and sends without waiting for slow readers.

Data that a client is slow to read is buffered for it. This module knows bytes, not messages.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections.abc import Iterable

from llmfw.core.ipc.wire import Frames, framed

from .waker import Waker

CHUNK = 2**18
PATIENCE_S = 0.001
"""How long to wait for the rest of a client's message, counted from its last piece. A long prompt, or thousands of requests
at once, exceed a socket's buffer, and would otherwise arrive in pieces, one per step."""


class Client:
    """Connection of one client.

    Args:
        sock: connected, non-blocking socket.

    Attributes:
        is_gone: whether it has closed its end.
    """

    __slots__ = ("_frames", "_unsent", "is_gone", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.is_gone = False
        self._frames = Frames()
        self._unsent = bytearray()

    @property
    def is_speaking(self) -> bool:
        """Whether an incomplete payload has arrived."""
        return self._frames.has_begun and not self.is_gone

    @property
    def lags(self) -> bool:
        """Whether unsent bytes remain."""
        return bool(self._unsent)

    def receive(self) -> list[bytes]:
        """Return the payloads that have arrived."""
        payloads: list[bytes] = []
        try:
            while data := self.sock.recv(CHUNK):
                payloads += self._frames.feed(data)
                if len(data) < CHUNK:
                    return payloads
        except BlockingIOError:
            return payloads
        except ConnectionError:  # it ended without reading what was said to it
            pass
        self.is_gone = True
        return payloads

    def send(self, payload: bytes) -> None:
        """Send a payload, or as much of it as goes out at once."""
        if self.is_gone:
            return
        data = framed(payload)
        if self._unsent:
            self._unsent += data
        elif (sent := self._send(data)) < len(data):
            self._unsent += data[sent:]

    def send_rest(self) -> None:
        """Send more of what did not go out."""
        del self._unsent[: self._send(self._unsent)]

    def finish(self, seconds: float) -> None:
        """Wait until everything is sent, or for at most this time."""
        with contextlib.suppress(OSError):
            self.sock.settimeout(seconds)
            self.sock.sendall(self._unsent)
            self._unsent.clear()

    def _send(self, data: bytes | bytearray) -> int:
        try:
            return self.sock.send(data)
        except BlockingIOError:
            return 0
        except ConnectionError:  # it is gone, as the next `receive` says
            return len(data)


class Connections:
    """All clients of an engine, and the alarm that may wake it.

    Args:
        descriptors: descriptors of the sockets, which this object owns from now on.
        alarm: wakes the thread that polls.

    Attributes:
        clients: connected clients.
    """

    def __init__(self, descriptors: Iterable[int], alarm: Waker) -> None:
        self.clients = [Client(_take_over(descriptor)) for descriptor in descriptors]
        self._alarm = alarm
        self._selector = selectors.DefaultSelector()
        self._selector.register(alarm, selectors.EVENT_READ)
        for client in self.clients:
            self._selector.register(client.sock, selectors.EVENT_READ, client)

    def poll(self, timeout_s: float | None) -> list[tuple[Client, list[bytes]]]:
        """Return the clients' payloads; a client with `is_gone` sends no more.

        Args:
            timeout_s: maximum wait for the first payload or the alarm; None: no limit.
        """
        found = self._take(timeout_s)
        while any(client.is_speaking for client in self.clients) and (more := self._take(PATIENCE_S)):
            found += more
        return found

    def send(self, client: Client, payload: bytes) -> None:
        """Send a payload to one client."""
        lagged = client.lags
        client.send(payload)
        if client.lags and not lagged and not client.is_gone:
            self._selector.modify(client.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, client)

    def _take(self, timeout_s: float | None) -> list[tuple[Client, list[bytes]]]:
        found = []
        for key, events in self._selector.select(timeout_s):
            client: Client | None = key.data
            if client is None:
                self._alarm.stop()
                continue
            if events & selectors.EVENT_WRITE:
                client.send_rest()
                if not client.lags:
                    self._selector.modify(client.sock, selectors.EVENT_READ, client)
            if events & selectors.EVENT_READ:
                found.append((client, client.receive()))
                if client.is_gone:
                    self._drop(client)
        return found

    def _drop(self, client: Client) -> None:
        self._selector.unregister(client.sock)
        client.sock.close()
        self.clients.remove(client)


def _take_over(descriptor: int) -> socket.socket:
    """Return an inherited socket, non-blocking and closed to child processes."""
    sock = socket.socket(fileno=descriptor)
    sock.set_inheritable(False)
    sock.setblocking(False)
    return sock
