"""The interface of a response store, which stores responses and their input as conversations.

The server creates the ids. A store does not interpret the contents of responses.
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
        previous: id of the response that this one continues; never changes.
        response: the response object, as JSON. The store returns exactly these bytes.
        input: input items of this turn, as a JSON list. The store returns exactly these bytes. Items of
            earlier turns are in the records of those turns.
        tenant: tenant that owns the response: the name of the API key that created it; "" if it was created
            without a key.
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
        """Size of the response in bytes, as counted toward the store's limit."""
        return len(self.response) + len(self.input)


class ResponseStore(ABC):
    """Stores responses. Responses that continue each other form a conversation.

    If the responses exceed `max_bytes`, a store removes whole conversations. The time at which a conversation
    was last continued is the largest `created_at` that was ever put into it.

    Args:
        folder: folder to store the responses in; None: the user chose no folder.
        max_bytes: maximum size of all responses in bytes. Beyond it, the store removes whole conversations,
            starting with the least recently continued one (ties in any order). It also removes a single
            conversation that is larger than `max_bytes`.
        options: an instance of the store's `Options`, passed by keyword, only to a store that has options.

    Raises:
        ConfigError: from the constructor: the folder cannot be used; the message gives the reason.
    """

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the component, set by `-o response_store.key=value`.

        A store with options overrides this.
        """

    @abstractmethod
    def __init__(self, folder: Path | None, max_bytes: int) -> None: ...

    @abstractmethod
    async def put(self, record: ResponseRecord) -> None:
        """Store a response, replacing an older one with the same id.

        The response survives a crash once this returns.
        """

    @abstractmethod
    async def get(self, response_id: str) -> ResponseRecord:
        """Return a response.

        Raises:
            KeyError: the response does not exist.
        """

    @abstractmethod
    async def conversation(self, response_id: str) -> Sequence[ResponseRecord]:
        """Return a response and all responses that it continues, oldest first.

        Raises:
            KeyError: the response, or one that it continues, does not exist. The argument is the missing id.
        """

    @abstractmethod
    async def delete(self, response_id: str) -> None:
        """Remove a response. The other responses of its conversation stay.

        Raises:
            KeyError: the response does not exist.
        """

    @abstractmethod
    async def unfinished(self) -> Sequence[ResponseRecord]:
        """Return the responses that are "queued" or "in_progress"."""

    @abstractmethod
    async def purge(self, before: float) -> int:
        """Remove conversations last continued before a time; return the number of removed responses."""

    @abstractmethod
    async def close(self) -> None:
        """Release the folder. No method may be called afterwards."""
