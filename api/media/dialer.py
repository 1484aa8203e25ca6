"""Connects to hosts for httpcore: resolves a name once, checks its addresses, and connects to one of them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpcore

from .addresses import check_addresses

Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""Returns the addresses of a host; raises OSError if it has none."""

MAX_LOOKUPS = 8
"""Look-ups of names at a time. Each takes a thread, which a slow name server may hold for half a minute."""
MAX_DIALLED = 2  # addresses of a host that are tried


class SystemResolver:
    """Resolves names as the system does, in threads of its own."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(MAX_LOOKUPS, thread_name_prefix="llmfw-media-names")

    async def __call__(self, host: str) -> Sequence[str]:
        """Return the addresses of a host; raise OSError if it has none."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, _look_up, host)
        return list(dict.fromkeys(found))

    def close(self) -> None:
        """Start no further look-ups."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str) -> list[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a label of more than 63 characters
        raise OSError("the name is invalid") from error
    return [str(address[0]) for *_, address in found]


class CheckedDialer(httpcore.AsyncNetworkBackend):
    """Connects to public addresses only.

    Resolves a name once, and connects to the addresses that were checked. So a name whose addresses change
    between two look-ups cannot evade the check. httpcore verifies the certificate for the host's name, not
    for the address.

    Args:
        resolve: resolver of names.
        network: connects to addresses; None: httpcore's own.
    """

    def __init__(self, resolve: Resolve, network: httpcore.AsyncNetworkBackend | None = None) -> None:
        self._resolve = resolve
        self._network = network or httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to a host.

        Raises:
            ImageRefusedError: an address of the host is not public.
            httpcore.ConnectError: the host has no address, or no address answers.
        """
        host = host.strip("[]")
        try:
            addresses = await self._resolve(host)
        except OSError as error:
            raise httpcore.ConnectError("the name has no address") from error
        check_addresses(host, addresses)
        failure: Exception | None = None
        for address in addresses[:MAX_DIALLED]:
            try:
                return await self._network.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise httpcore.ConnectError("no address answers") from failure
