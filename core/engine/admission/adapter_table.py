"""Tracks the adapters of an engine: their names, their places, and the requests that use them.

A place is room for an adapter in memory: a number below `--max-loaded-adapters`. A load under a used name makes
a new version, in its own place. Each request keeps the version that was current at its arrival. An unloaded or
replaced adapter takes no new requests, and leaves its place when its last request has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from llmfw.core.base.adapter_salt import adapter_salt
from llmfw.core.base.control import AdapterInfo
from llmfw.core.base.errors import ConflictError, ModelNotFoundError
from llmfw.core.base.request import Request


@dataclass(slots=True)
class Resident:
    """A loaded adapter.

    Attributes:
        name: name by which requests ask for it.
        path: folder from which it was read.
        version: number of its load, unique in the engine.
        place: index of its place.
        rank: its highest rank.
        digest: hash of its files.
        requests: ids of the open requests that use it.
        leaves: whether its place becomes free when these have ended.
    """

    name: str
    path: str
    version: int
    place: int
    rank: int
    digest: str
    requests: set[str] = field(default_factory=set)
    leaves: bool = False

    def info(self) -> AdapterInfo:
        """Return the adapter as plain data."""
        return AdapterInfo(
            self.name,
            self.path,
            self.version,
            state="unloading" if self.leaves else "ready",
            rank=self.rank,
            digest=self.digest,
            num_requests=len(self.requests),
        )


class AdapterTable:
    """The loaded adapters of an engine.

    Args:
        num_places: number of places.
        setting: the setting that gives more places, for error messages.
        forget: called with the number of each adapter that leaves its place: index of the place, plus 1.
    """

    def __init__(
        self,
        num_places: int,
        setting: str = "--max-adapters",
        forget: Callable[[int], None] = lambda number: None,
    ) -> None:
        self._free = list(range(num_places - 1, -1, -1))
        self._num_places = num_places
        self._setting = setting
        self._forget = forget
        self._ready: dict[str, Resident] = {}
        self._leaving: list[Resident] = []
        self._of_request: dict[str, Resident] = {}

    def __iter__(self) -> Iterator[Resident]:
        """Yield the adapters: first those that take requests, by name."""
        yield from (self._ready[name] for name in sorted(self._ready))
        yield from self._leaving

    @property
    def num_free(self) -> int:
        """Number of free places."""
        return len(self._free)

    @property
    def is_used(self) -> bool:
        """Whether an open request uses an adapter."""
        return bool(self._of_request)

    def add(self, name: str, path: str, version: int, rank: int, digest: str) -> Resident:
        """Give an adapter a place. The adapter replaces an earlier one with the same name.

        Raises:
            ConflictError: all places are taken.
        """
        earlier = self._ready.get(name)
        if not self._free and (earlier is None or earlier.requests):
            raise ConflictError(self._no_room(name, earlier))
        if earlier is not None:
            self.remove(name)
        resident = self._ready[name] = Resident(name, path, version, self._free.pop(), rank, digest)
        return resident

    def remove(self, name: str) -> Resident:
        """Stop new requests to an adapter. The adapter leaves its place when its last request has ended.

        Raises:
            ModelNotFoundError: there is no such adapter.
        """
        resident = self.find(name)
        del self._ready[name]
        resident.leaves = True
        if resident.requests:
            self._leaving.append(resident)
        else:
            self._release(resident)
        return resident

    def find(self, name: str) -> Resident:
        """Return the adapter that takes new requests for this name.

        Raises:
            ModelNotFoundError: there is none.
        """
        if name not in self._ready:
            known = ", ".join(sorted(self._ready)) or "none"
            raise ModelNotFoundError(f"there is no adapter {name!r:.100}; loaded are: {known}")
        return self._ready[name]

    def salted(self, request: Request) -> Request:
        """Return the request with a salt: requests share cached prefixes only within one adapter version.

        Raises:
            ModelNotFoundError: its adapter is not loaded.
        """
        salt = self.salt_of(request.adapter, request.cache_salt)
        return request if salt is request.cache_salt else msgspec.structs.replace(request, cache_salt=salt)

    def salt_of(self, adapter: str, salt: str) -> str:
        """Return the salt of the cached prefixes of requests with this adapter and this `cache_salt`.

        Raises:
            ModelNotFoundError: the adapter is not loaded.
        """
        return adapter_salt(adapter, self.find(adapter).digest if adapter else "", salt)

    def enter(self, request: Request) -> None:
        """Record an accepted request. Its adapter, if it has one, stays in its place until `leave`."""
        if request.adapter:
            resident = self._of_request[request.id] = self.find(request.adapter)
            resident.requests.add(request.id)

    def leave(self, request_id: str) -> None:
        """Forget a request that has ended. Unknown ids are ignored."""
        resident = self._of_request.pop(request_id, None)
        if resident is None:
            return
        resident.requests.discard(request_id)
        if resident.leaves and not resident.requests:
            self._leaving.remove(resident)
            self._release(resident)

    def number_of(self, request_id: str) -> int:
        """Return the number of an entered request's adapter, which is that of its place, from 1; 0: it has none."""
        resident = self._of_request.get(request_id)
        return 0 if resident is None else resident.place + 1

    def _release(self, resident: Resident) -> None:
        self._free.append(resident.place)
        self._forget(resident.place + 1)

    def _no_room(self, name: str, earlier: Resident | None) -> str:
        if not self._num_places:
            return "this server has no room for adapters; start it with --max-adapters"
        if earlier is not None:
            return (
                f"adapter {name!r:.100} runs {len(earlier.requests)} requests, and no other place is free for its new version; "
                f"load it again once they have ended, or raise {self._setting}"
            )
        return f"all {self._num_places} places for adapters are taken; unload one, or raise {self._setting}"
