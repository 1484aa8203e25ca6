"""The interface of a response store: responses and their input, as conversations.

The server creates the ids. A store does not know the contents of responses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import msgspec


class ResponseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A response and the input items that came with it.

    Attributes:
        id: id that the API creates, and never reuses.
        created_at: seconds since the epoch.
        status: status that the client sees; "queued" and "in_progress" while it runs.
        previous: id of the response that it continues; never changes.
        response: the object, as JSON. The store returns the same bytes, as with `input`.
        input: list of the input items of this turn only, as JSON; earlier turns have their own.
        tenant: tenant that owns it: the name of the API key that created it; "" if it was created without one.
    """

    id: str
    created_at: float
    status: str
    previous: str | None = None
    response: bytes
    input: bytes
    tenant: str = ""

    @property
    def size(self) -> int:
        """Number of bytes that it counts towards the store's limit."""
        return len(self.response) + len(self.input)


class ResponseStore(ABC):
    """Stores responses. Responses that continue each other form a conversation; to make room, a store removes whole ones.

    A conversation was last continued at the largest `created_at` that was put into it.

    Args:
        folder: folder to store them in; None if the user named none.
        max_bytes: size beyond which whole conversations are removed, the least recently continued first (any of equals),
            and finally one that is larger than `max_bytes` by itself.
        options: an instance of its `Options`, passed by this name, only to a store that has options.

    Raises:
        ConfigError: from the constructor: the folder cannot be used, with the reason.
    """

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the component, set by `-o response_store.key=value`. A store with options overrides this."""

    @abstractmethod
    def __init__(self, folder: Path | None, max_bytes: int) -> None: ...

    @abstractmethod
    async def put(self, record: ResponseRecord) -> None:
        """Store a response, or replace the one with its id. It survives a crash of the process once this returns."""

    @abstractmethod
    async def get(self, response_id: str) -> ResponseRecord:
        """Return a response; KeyError if it does not exist."""

    @abstractmethod
    async def conversation(self, response_id: str) -> Sequence[ResponseRecord]:
        """Return a response and all responses that it continues, first turn first; KeyError(id) if one does not exist."""

    @abstractmethod
    async def delete(self, response_id: str) -> None:
        """Remove only this response; KeyError if it does not exist."""

    @abstractmethod
    async def unfinished(self) -> Sequence[ResponseRecord]:
        """Return the responses that are "queued" or "in_progress"."""

    @abstractmethod
    async def purge(self, before: float) -> int:
        """Remove the conversations last continued before a time; return the number of removed responses."""

    @abstractmethod
    async def close(self) -> None:
        """Release the folder. Nothing may be called afterwards."""
