"""Finds adapters that requests name and that are not loaded, and loads them, within limits.

Any client may send any name. So unknown names are remembered for a while, each tenant has few searches at once,
and an adapter that was found takes the place of one that was found earlier: that of the tenant that has most.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Protocol

from llmfw.api.text.model_names import ModelNames
from llmfw.core.base.adapter_name import what_is_wrong
from llmfw.core.base.control import AdapterInfo, AdapterList
from llmfw.core.base.errors import (
    ConflictError,
    ModelNotFoundError,
    OverloadedError,
    RequestError,
    TenantLimitError,
)

logger = logging.getLogger(__name__)

MAX_SEARCHES = 64
MAX_OF_TENANT = 4
"""Maximum number of searches at once, of all clients and of one tenant."""
MISSING_S = 5.0
BROKEN_S = 60.0
"""Seconds for which a name that the source does not have, and one that cannot be loaded, is not searched again."""
MAX_REMEMBERED = 4096
USED_S = 0.5
"""Seconds for which an adapter stays after a request has named it: the engine may not have the request yet."""
WAIT_S = 10.0
POLL_S = 0.05
"""Longest wait for an adapter that can leave, and time between two looks, in seconds."""


class Source(Protocol):
    """Finds the folders of adapters, as `IsolatedSource` does."""

    async def find(self, name: str) -> str | None:
        """Return the folder of an adapter; None if there is none."""


class Loader(Protocol):
    """Loads and unloads adapters, as `AdapterService` does."""

    async def list(self) -> AdapterList:
        """Return all adapters."""

    async def load(self, name: str, path: str) -> AdapterInfo:
        """Load an adapter."""

    async def unload(self, name: str) -> AdapterList:
        """Unload an adapter."""


class AdapterSearch:
    """Searches for adapters that are not loaded.

    Args:
        source: finds the adapters' folders.
        loader: loads and unloads adapters.
        names: the names that clients may use now.
        clock: monotonic clock in seconds.
    """

    def __init__(
        self, source: Source, loader: Loader, names: ModelNames, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._source = source
        self._loader = loader
        self._names = names
        self._clock = clock
        self._searches: dict[str, asyncio.Task[None]] = {}
        self._of_tenant: Counter[str] = Counter()
        self._remembered: OrderedDict[str, tuple[float, str]] = OrderedDict()  # until when, and the error
        self._owners: dict[str, str] = {}  # name of each adapter that a search has loaded → tenant
        self._loading = asyncio.Lock()

    async def find(self, name: str, tenant: str) -> None:
        """Load an adapter if the source has it. Requests for one adapter share one search.

        Args:
            tenant: tenant of the request; "": it has none.

        Raises:
            RequestError: the adapter cannot be served, or the source refuses the request.
            OverloadedError: too many searches run, no loaded adapter can leave now, or the server is shutting down.
            ComponentFailedError: the source failed.
        """
        if what_is_wrong(name) or self._is_known_missing(name):
            return
        search = self._searches.get(name)
        if search is None:
            self._check_limits(tenant)
            search = self._searches[name] = asyncio.create_task(self._search(name, tenant))
            search.add_done_callback(lambda done: self._end(name, tenant, done))
            self._of_tenant[tenant] += 1
        await asyncio.wait({search})  # a client that leaves does not end the search of the others
        if search.cancelled():
            raise OverloadedError("the server is shutting down")
        search.result()

    async def close(self) -> None:
        """End all searches. The requests that wait for them are refused."""
        for search in list(self._searches.values()):
            search.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await search

    def _is_known_missing(self, name: str) -> bool:
        """Return whether the source did not have a name a moment ago. Raises the error of the last load."""
        until, error = self._remembered.get(name, (0.0, ""))
        if self._clock() >= until:
            self._remembered.pop(name, None)
            return False
        if error:
            raise _refused(error)
        return True

    def _check_limits(self, tenant: str) -> None:
        if self._of_tenant[tenant] >= MAX_OF_TENANT:
            raise TenantLimitError(
                f"{MAX_OF_TENANT} adapters are being searched for this tenant already; try again later"
            )
        if len(self._searches) >= MAX_SEARCHES:
            raise OverloadedError(f"{MAX_SEARCHES} adapters are being searched already; try again later")

    def _end(self, name: str, tenant: str, done: asyncio.Task[None]) -> None:
        del self._searches[name]
        self._of_tenant[tenant] -= 1
        if not self._of_tenant[tenant]:
            del self._of_tenant[tenant]
        if not done.cancelled():
            done.exception()  # marks it as read: all clients may have left

    async def _search(self, name: str, tenant: str) -> None:
        folder = await self._source.find(name)
        if folder is None:
            self._remember(name, MISSING_S)
            return
        async with self._loading:
            await self._load(name, folder, tenant)

    async def _load(self, name: str, folder: str, tenant: str) -> None:
        await self._make_room()
        try:
            await self._loader.load(name, folder)
        except ConflictError as error:  # an administrator's load was faster
            raise OverloadedError(str(error)) from error
        except RequestError as error:
            # The reason names files of the server, which are not for clients.
            logger.warning("Adapter %s was found, and cannot be served: %s", name, error)
            text = f"the adapter {name!r:.100} cannot be served; the server's log says why"
            self._remember(name, BROKEN_S, text)
            raise _refused(text) from error
        self._owners[name] = tenant
        logger.info("Adapter %s was found for a request", name)

    async def _make_room(self) -> None:
        """Unload an adapter if there is no room for another one.

        Raises:
            OverloadedError: no adapter can leave for some seconds.
        """
        ends = self._clock() + WAIT_S
        while True:
            found = await self._loader.list()
            ready = {each.name for each in found.adapters if each.state == "ready"}
            self._owners = {name: owner for name, owner in self._owners.items() if name in ready}
            if sum(each.state != "failed" for each in found.adapters) < found.max_loaded:
                return
            if (leaving := self._least_used(found)) is not None:
                with contextlib.suppress(ModelNotFoundError):  # an administrator's command was faster
                    await self._loader.unload(leaving)
            elif self._clock() >= ends:
                raise OverloadedError(
                    f"all {found.max_loaded} places for adapters are in use; try again later, or raise --max-loaded-adapters"
                )
            else:
                await asyncio.sleep(POLL_S)

    def _least_used(self, found: AdapterList) -> str | None:
        """Return the adapter to unload: of those without requests of the tenant that has most adapters, the one
        whose last use is longest ago. None: all are in use, or were not loaded by a search."""
        idle = [
            each.name
            for each in found.adapters
            if each.state == "ready" and not each.num_requests and each.name in self._owners
        ]
        unused = [each for each in idle if self._clock() - self._names.used_at(each) >= USED_S]
        if not unused:
            return None
        counts = Counter(self._owners.values())
        return min(unused, key=lambda name: (-counts[self._owners[name]], self._names.used_at(name)))

    def _remember(self, name: str, seconds: float, error: str = "") -> None:
        self._remembered[name] = (self._clock() + seconds, error)
        self._remembered.move_to_end(name)
        if len(self._remembered) > MAX_REMEMBERED:
            self._remembered.popitem(last=False)


def _refused(text: str) -> RequestError:
    return RequestError(text, param="model", code="adapter_not_loaded")
