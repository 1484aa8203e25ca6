"""The interfaces of stores: files by id, and batch jobs with their state.

No bundled part implements them yet; the routes for files and batches come with the first one.
Ids are made by the store and are the only names by which anything is found: a client's file name is data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence

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
