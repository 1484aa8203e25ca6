"""The interfaces of stores: files by id, batch jobs with their state, and responses with what they answer.

No bundled part implements the first two yet; the routes for files and batches come with the first one.
Ids are made by the server and are the only names by which anything is found: a client's file name is data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import msgspec


class FileRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a stored file. Times are seconds since the epoch."""

    id: str
    filename: str
    purpose: str
    bytes: int
    created_at: int
    expires_at: int | None = None


class BatchRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A batch job and its state. Times are seconds since the epoch, None until they come."""

    id: str
    endpoint: str
    input_file_id: str
    completion_window: str
    status: str
    created_at: int
    expires_at: int
    output_file_id: str | None = None
    error_file_id: str | None = None
    num_total: int = 0
    num_completed: int = 0
    num_failed: int = 0
    metadata: Mapping[str, str] = {}


class FileStore(ABC):
    """Keeps files. Every method raises KeyError for an id that is not there."""

    @abstractmethod
    async def put(self, filename: str, purpose: str, chunks: AsyncIterator[bytes]) -> FileRecord:
        """Store a file as it arrives. It exists once this returns, whole, and not before."""

    @abstractmethod
    async def get(self, file_id: str) -> FileRecord:
        """Return what is known of a file."""

    @abstractmethod
    def read(self, file_id: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Return the file's bytes from start to end (exclusive), in pieces."""

    @abstractmethod
    async def list(self, *, after: str | None, limit: int, purpose: str | None) -> Sequence[FileRecord]:
        """Return files after a cursor, newest first."""

    @abstractmethod
    async def delete(self, file_id: str) -> None:
        """Remove a file."""


class BatchStore(ABC):
    """Keeps batch jobs. Every method raises KeyError for an id that is not there."""

    @abstractmethod
    async def create(self, record: BatchRecord) -> None:
        """Keep a new job. It survives a crash once this returns."""

    @abstractmethod
    async def get(self, batch_id: str) -> BatchRecord:
        """Return a job."""

    @abstractmethod
    async def list(self, *, after: str | None, limit: int) -> Sequence[BatchRecord]:
        """Return jobs after a cursor, newest first."""

    @abstractmethod
    async def update(self, record: BatchRecord) -> None:
        """Replace a job's state."""

    @abstractmethod
    async def lease(self, owner: str, seconds: float) -> BatchRecord | None:
        """Take a job that no one holds, or whose lease has run out, for so many seconds; None if there is none."""


class ResponseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A response and the input items that came with it.

    Attributes:
        id: made by the API.
        created_at: seconds since the epoch.
        status: as the client sees it; "queued" and "in_progress" while it runs.
        previous: id of the response that it continues; never changes.
        response: the object, as JSON.
        input: the list of this turn's own input items, as JSON; those of the turns before are theirs.
    """

    id: str
    created_at: float
    status: str
    previous: str | None = None
    response: bytes
    input: bytes

    @property
    def size(self) -> int:
        """How many bytes it counts for."""
        return len(self.response) + len(self.input)


class ResponseStore(ABC):
    """Keeps responses. Those that continue each other are a conversation, and go together when room is needed.

    Args:
        folder: to keep them in; None where the user named none.
        max_bytes: past it, whole conversations go, the one that was continued longest ago first.

    Raises:
        ConfigError: from the constructor: the folder cannot be used, with the reason.
    """

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
