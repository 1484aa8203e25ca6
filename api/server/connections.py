"""The table of open connections: enforces limits, and chooses a connection to close when a limit is reached.

A connection is "waiting" while the server waits for bytes from its client. Only waiting connections are
closed to make room, starting with the one that has been quiet longest.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Protocol

CHECK_INTERVAL_S = 1.0
LOG_INTERVAL_S = 10.0
TCP_ESTABLISHED = 1  # first byte of Linux's struct tcp_info
MAX_LEAVING = 256
"""Maximum number of refused connections that stay open to deliver their reply.

They do not count toward the other limits.
"""
MAX_EARLY = 64
"""Maximum number of requests that run before their whole body has arrived."""


class Connection(Protocol):
    """The methods of a connection that the table calls."""

    def check(self, elapsed: float) -> None:
        """End the connection if one of its deadlines has passed.

        Args:
            elapsed: seconds since the last check.
        """

    def evict(self) -> None:
        """End the connection to make room for another connection."""


class _Peer:
    """The connections of one address."""

    __slots__ = ("address", "count", "waiting")

    def __init__(self, address: str) -> None:
        self.address = address
        self.count = 0
        self.waiting: dict[Connection, None] = {}


class ConnectionTable:
    """All connections of a server.

    Args:
        most: maximum number of connections open at a time.
        most_per_address: maximum number of connections open at a time from one address.
    """

    def __init__(self, most: int, most_per_address: int) -> None:
        self._most = most
        self._most_per_address = most_per_address
        self._peers: dict[str, _Peer] = {}
        self._owners: dict[Connection, _Peer] = {}
        self._leaving: dict[Connection, None] = {}
        self._early: set[Connection] = set()

    def __len__(self) -> int:
        return len(self._owners)

    def add(self, connection: Connection, address: str) -> str | None:
        """Add a waiting connection; return None, or the reason if there is no room for it.

        If a limit is reached, another waiting connection is evicted. For the limit per address, it is a
        connection of the same address; for the overall limit, a connection of the address with the most
        connections.
        """
        peer = self._peers.get(address)
        if peer is not None and peer.count >= self._most_per_address and not self._evict(peer):
            return f"{self._most_per_address} connections of your address are in use"
        if len(self._owners) >= self._most and not self._evict_anywhere():
            return f"all {self._most} connections are in use"
        peer = self._peers.get(address)  # an eviction may have removed it
        if peer is None:
            peer = self._peers[address] = _Peer(address)
        peer.count += 1
        peer.waiting[connection] = None
        self._owners[connection] = peer
        return None

    def remove(self, connection: Connection) -> None:
        """Remove a connection. Does nothing if it was not added."""
        self._leaving.pop(connection, None)
        self._early.discard(connection)
        peer = self._owners.pop(connection, None)
        if peer is None:
            return
        peer.waiting.pop(connection, None)
        peer.count -= 1
        if not peer.count:
            del self._peers[peer.address]

    def leave(self, connection: Connection) -> bool:
        """Stop counting a refused connection, which stays open for a moment to deliver its reply.

        Returns:
            False if MAX_LEAVING refused connections are already open; the connection must then be closed at
            once.
        """
        self.remove(connection)
        if len(self._leaving) >= MAX_LEAVING:
            return False
        self._leaving[connection] = None
        return True

    def heard(self, connection: Connection) -> None:
        """Mark a connection as waiting; its client has just sent bytes, or its last reply is complete."""
        peer = self._owners.get(connection)
        if peer is not None:
            peer.waiting.pop(connection, None)
            peer.waiting[connection] = None

    def busy(self, connection: Connection) -> None:
        """Mark a connection as busy: the server works on its request, so it is not evicted."""
        peer = self._owners.get(connection)
        if peer is not None:
            peer.waiting.pop(connection, None)

    def begin_early(self, connection: Connection) -> bool:
        """Count a request that starts before its body has arrived; return False if MAX_EARLY already do."""
        if len(self._early) >= MAX_EARLY:
            return False
        self._early.add(connection)
        return True

    def end_early(self, connection: Connection) -> None:
        """Stop counting a request whose body has arrived or is no longer needed."""
        self._early.discard(connection)

    def check_all(self, elapsed: float) -> None:
        """Make each connection check its deadlines."""
        for connection in (*self._owners, *self._leaving):
            connection.check(elapsed)

    async def watch(self) -> None:
        """Check all connections every CHECK_INTERVAL_S seconds, until cancelled."""
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            now = loop.time()
            # Time during which the event loop was blocked and could not read does not count against clients.
            self.check_all(min(now - last, 2 * CHECK_INTERVAL_S))
            last = now

    def _evict_anywhere(self) -> bool:
        ranked = max(self._peers.values(), key=lambda peer: (bool(peer.waiting), peer.count))
        return self._evict(ranked)

    def _evict(self, peer: _Peer) -> bool:
        """Evict the connection of an address that has been quiet longest.

        Returns False if all connections of the address are busy.
        """
        victim = next(iter(peer.waiting), None)
        if victim is None:
            return False
        self.remove(victim)
        victim.evict()
        return True


class Occasional:
    """Limits log lines to one of each kind per LOG_INTERVAL_S seconds, and counts the lines left out."""

    def __init__(self) -> None:
        self._next: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def due(self, kind: str, now: float) -> int | None:
        """Return the number of lines of this kind that were left out since the last one.

        Returns None if the new line must be left out, too.
        """
        if now < self._next.get(kind, 0.0):
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return None
        self._next[kind] = now + LOG_INTERVAL_S
        return self._left_out.pop(kind, 0)


def has_left(transport: asyncio.Transport) -> bool:
    """Return whether the client has closed a connection from which the server does not read at the moment.

    Only Linux reports this, elsewhere the result is False. It is also False while the receive buffer is full
    of bytes that the client sent before; the server then notices when it reads them.
    """
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family == socket.AF_UNIX or not hasattr(socket, "TCP_INFO"):
        return False
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != TCP_ESTABLISHED


@contextlib.contextmanager
def watching(table: ConnectionTable) -> Iterator[None]:
    """Check the deadlines of a table's connections for the duration of the `with` block."""
    task = asyncio.create_task(table.watch())
    try:
        yield
    finally:
        task.cancel()
