"""Connections of the engine process to its clients: reads payloads between two steps, and sends without
blocking.

Data that a client is slow to read is buffered. This module handles payloads as bytes, not as messages.
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
"""Seconds to wait for more bytes of an incomplete payload. A long prompt, or thousands of requests at once,
exceed a socket's buffer; without this wait, only one buffer of them would arrive per step."""


class Client:
    """Connection of one client.

    Args:
        sock: connected, non-blocking socket.

    Attributes:
        is_gone: whether the client has closed its end.
    """

    __slots__ = ("_frames", "_unsent", "is_gone", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.is_gone = False
        self._frames = Frames()
        self._unsent = bytearray()

    @property
    def is_speaking(self) -> bool:
        """Whether the next payload has arrived in part, but not as a whole."""
        return self._frames.has_begun and not self.is_gone

    @property
    def lags(self) -> bool:
        """Whether data remains to be sent."""
        return bool(self._unsent)

    def receive(self) -> list[bytes]:
        """Return the payloads that have arrived. Sets `is_gone` if the client has closed its end."""
        payloads: list[bytes] = []
        try:
            while data := self.sock.recv(CHUNK):
                payloads += self._frames.feed(data)
                if len(data) < CHUNK:
                    return payloads
        except BlockingIOError:
            return payloads
        except ConnectionError:  # the client ended without reading all data
            pass
        self.is_gone = True
        return payloads

    def send(self, payload: bytes) -> None:
        """Send a payload; buffer the part that the socket does not take at once."""
        if self.is_gone:
            return
        data = framed(payload)
        if self._unsent:
            self._unsent += data
        elif (sent := self._send(data)) < len(data):
            self._unsent += data[sent:]

    def send_rest(self) -> None:
        """Send as much of the buffered data as the socket takes."""
        del self._unsent[: self._send(self._unsent)]

    def finish(self, seconds: float) -> None:
        """Wait until all data is sent, but at most `seconds`."""
        with contextlib.suppress(OSError):
            self.sock.settimeout(seconds)
            self.sock.sendall(self._unsent)
            self._unsent.clear()

    def _send(self, data: bytes | bytearray) -> int:
        try:
            return self.sock.send(data)
        except BlockingIOError:
            return 0
        except ConnectionError:  # the client has ended, which the next `receive` finds
            return len(data)


class Connections:
    """Connections to all clients of an engine. One thread polls them.

    Args:
        descriptors: file descriptors of the sockets; this object takes ownership of them.
        alarm: object by which other threads wake the polling thread.

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
        """Wait for payloads; return (client, payloads) pairs.

        A client may occur in several pairs. A list may be empty, for example if the client has closed its connection (`Client.is_gone`).

        Args:
            timeout_s: maximum number of seconds to wait for the first payload or a wake-up call; None: no
                limit.
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
    """Return an inherited socket, made non-blocking and not inheritable by child processes."""
    sock = socket.socket(fileno=descriptor)
    sock.set_inheritable(False)
    sock.setblocking(False)
    return sock
