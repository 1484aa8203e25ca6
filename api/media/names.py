"""Looks up names of hosts, so that slow name servers neither delay other tenants nor the server's end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import weakref
from collections.abc import Awaitable, Callable, Sequence
from threading import Thread

Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""Returns the addresses of a host; raises OSError if it has none."""

MAX_LOOKUPS, MAX_LOOKUPS_OF_TENANT = 64, 4
"""Look-ups at a time, of all tenants and of one. Each takes a thread until it ends, which a slow name server may delay
for half a minute, long after the image was given up."""


class SystemResolver:
    """Resolves names as the system does. A look-up that still runs does not delay the end of the process."""

    async def __call__(self, host: str) -> Sequence[str]:
        """Return the addresses of a host; raise OSError if it has none."""
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[str]] = loop.create_future()
        Thread(target=_look_up, args=(host, loop, found), name="llmfw-media-name", daemon=True).start()
        return list(dict.fromkeys(await found))


class FairLookups:
    """Limits the look-ups of each tenant, and of all tenants together.

    A look-up counts until it ends, even if the image that needed it was given up before.

    Args:
        resolve: resolver of names.
    """

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._places = asyncio.Semaphore(MAX_LOOKUPS)
        self._of_tenants: weakref.WeakValueDictionary[str, asyncio.Semaphore] = weakref.WeakValueDictionary()

    async def addresses(self, tenant: str, host: str) -> Sequence[str]:
        """Return the addresses of a host; raise OSError if it has none."""
        of_tenant = self._of_tenants.get(tenant)
        if of_tenant is None:
            of_tenant = self._of_tenants[tenant] = asyncio.Semaphore(MAX_LOOKUPS_OF_TENANT)
        await of_tenant.acquire()
        try:
            await self._places.acquire()
        except BaseException:
            of_tenant.release()
            raise
        looking = asyncio.ensure_future(self._resolve(host))
        looking.add_done_callback(lambda _: self._release(of_tenant))
        return await asyncio.shield(looking)

    def _release(self, of_tenant: asyncio.Semaphore) -> None:
        of_tenant.release()
        self._places.release()


def _look_up(host: str, loop: asyncio.AbstractEventLoop, found: asyncio.Future[list[str]]) -> None:
    addresses, failure = list[str](), None
    try:
        infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        addresses = [str(address[0]) for *_, address in infos]
    except OSError as error:
        failure = error
    except UnicodeError:  # a label of more than 63 characters
        failure = OSError("the name is invalid")

    def tell() -> None:
        if found.done():  # nothing waits for it
            return
        if failure is None:
            found.set_result(addresses)
        else:
            found.set_exception(failure)

    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(tell)
