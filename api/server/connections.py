"""The open connections: how many there are, whose they are, and which one is closed to make room for another.

Knows nothing of HTTP. A connection is "waiting" while the server waits for its client's bytes: only such connections
are closed to make room, the one that has been quiet longest first.
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
"""Refused connections that are kept open, in addition to those that count."""
MAX_EARLY = 64
"""Requests that are begun before their body is there."""


class Connection(Protocol):
    """What the table needs of a connection."""

    def check(self, elapsed: float) -> None:
        """End the connection if one of its deadlines has passed.

        Args:
            elapsed: seconds since the last call for any connection.
        """

    def evict(self) -> None:
        """End the connection to make room for another one."""


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
        most: open at a time.
        most_per_address: open at a time from one address.
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
        """Add a waiting connection; return why there is no room for it, or None.

        A waiting connection is evicted if a limit is reached: one of the same address, or, if all places are taken,
        one of the address that has most.
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
        """Forget a connection, whether it was added or not."""
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
        """Take a connection out of the count that stays open for a moment, so that its client can read a refusal.

        Returns:
            False if too many do that already: the connection has to be closed at once.
        """
        self.remove(connection)
        if len(self._leaving) >= MAX_LEAVING:
            return False
        self._leaving[connection] = None
        return True

    def heard(self, connection: Connection) -> None:
        """Note that a waiting connection's client has sent something."""
        peer = self._owners.get(connection)
        if peer is not None:
            peer.waiting.pop(connection, None)
            peer.waiting[connection] = None

    def busy(self, connection: Connection) -> None:
        """Note that the server works on a connection's request: it is not evicted."""
        peer = self._owners.get(connection)
        if peer is not None:
            peer.waiting.pop(connection, None)

    def begin_early(self, connection: Connection) -> bool:
        """Return whether a connection's request may begin before its body is there: not too many do."""
        if len(self._early) >= MAX_EARLY:
            return False
        self._early.add(connection)
        return True

    def end_early(self, connection: Connection) -> None:
        """Note that a request's body is there, or no longer of interest."""
        self._early.discard(connection)

    def check_all(self, elapsed: float) -> None:
        """Have each connection look at its deadlines."""
        for connection in (*self._owners, *self._leaving):
            connection.check(elapsed)

    async def watch(self) -> None:
        """Check all connections each second, until cancelled."""
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            now = loop.time()
            # If the loop itself stood still, clients could not be heard: that time does not count against them.
            self.check_all(min(now - last, 2 * CHECK_INTERVAL_S))
            last = now

    def _evict_anywhere(self) -> bool:
        ranked = max(self._peers.values(), key=lambda peer: (bool(peer.waiting), peer.count))
        return self._evict(ranked)

    def _evict(self, peer: _Peer) -> bool:
        """Close the connection of an address that has been quiet longest; return whether there was one."""
        victim = next(iter(peer.waiting), None)
        if victim is None:
            return False
        self.remove(victim)
        victim.evict()
        return True


class Occasional:
    """Lets a kind of log line through at most once in LOG_INTERVAL_S, with the number of lines that were left out."""

    def __init__(self) -> None:
        self._next: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def due(self, kind: str, now: float) -> int | None:
        """Return how many lines of a kind were left out before this one, or None if it is to be left out itself."""
        if now < self._next.get(kind, 0.0):
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return None
        self._next[kind] = now + LOG_INTERVAL_S
        return self._left_out.pop(kind, 0)


def has_left(transport: asyncio.Transport) -> bool:
    """Return whether the client has closed the connection, where its bytes are not read, and so not its end either.

    Linux alone tells, and not while bytes that the client has sent find no room here: then it shows as they are read.
    """
    sock = transport.get_extra_info("socket")
    if sock is None or not hasattr(socket, "TCP_INFO"):
        return False
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != TCP_ESTABLISHED


@contextlib.contextmanager
def watching(table: ConnectionTable) -> Iterator[None]:
    """Check the deadlines of a table's connections during the block."""
    task = asyncio.create_task(table.watch())
    try:
        yield
    finally:
        task.cancel()
