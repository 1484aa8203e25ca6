"""Connects to hosts for httpcore: resolves a name once, checks its addresses, and connects to one of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import httpcore

from .addresses import check_addresses
from .names import Resolve

MAX_DIALLED = 2  # addresses of a host that are tried


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
