"""The interface of a response store: responses, with what they answer, as conversations.

Ids are made by the server. A store knows nothing of what responses hold.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import msgspec


class ResponseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A response and the input items that came with it.

    Attributes:
        id: made by the API, and never used again.
        created_at: seconds since the epoch.
        status: as the client sees it; "queued" and "in_progress" while it runs.
        previous: id of the response that it continues; never changes.
        response: the object, as JSON. It comes back byte for byte, as `input` does.
        input: the list of this turn's own input items, as JSON; those of the turns before are theirs.
        tenant: that it belongs to: the name of the API key that made it; "": it was made without one.
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
        """How many bytes it counts for."""
        return len(self.response) + len(self.input)


class ResponseStore(ABC):
    """Keeps responses. Those that continue each other are a conversation, and go together when room is needed.

    A conversation was last continued at the largest `created_at` that was put into it.

    Args:
        folder: to keep them in; None where the user named none.
        max_bytes: past it, whole conversations go, the one that was continued longest ago first (of equals any), and at
            last one that is larger than the room alone.
        options: given by this name, and only to a store that has some: an instance of its `Options`.

    Raises:
        ConfigError: from the constructor: the folder cannot be used, with the reason.
    """

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the part, set by `-o response_store.key=value`. A store with options overrides this."""

    @abstractmethod
    def __init__(self, folder: Path | None, max_bytes: int) -> None: ...

    @abstractmethod
    async def put(self, record: ResponseRecord) -> None:
        """Keep a response, or replace the one of its id. It survives a crash of the process once this returns."""

    @abstractmethod
    async def get(self, response_id: str) -> ResponseRecord:
        """Return a response; KeyError if it is not there."""

    @abstractmethod
    async def conversation(self, response_id: str) -> Sequence[ResponseRecord]:
        """Return a response and all that it continues, the first turn first; KeyError(id) for one that is gone."""

    @abstractmethod
    async def delete(self, response_id: str) -> None:
        """Remove a response, and no other; KeyError if it is not there."""

    @abstractmethod
    async def unfinished(self) -> Sequence[ResponseRecord]:
        """Return the responses that are "queued" or "in_progress"."""

    @abstractmethod
    async def purge(self, before: float) -> int:
        """Remove the conversations that were last continued before a time; return how many responses went."""

    @abstractmethod
    async def close(self) -> None:
        """Release the folder. Nothing may be called afterwards."""
