"""The interface of a file store: bytes by id, with their metadata.

The server creates the ids. Files are found only by id; a client's file name is metadata. A store interprets
neither the contents nor the purpose of files.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from pathlib import Path

import msgspec


class FileRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Metadata of a stored file.

    Attributes:
        id: id that the server creates, and that sorts by time of creation; ASCII letters, digits, `-` and
            `_`.
        filename: the client's name for the file: any text, even with a NUL, a slash or a lone surrogate.
        purpose: the client's purpose for the file, such as "batch".
        bytes: size of the file in bytes.
        created_at, expires_at: seconds since the epoch; expires_at is None if the file does not expire.
        space: namespace that lists the file. Clients' files are in "files"; files of the server itself, such
            as the parts of an upload, are in other spaces.
        tenant: tenant that owns the file: the name of the API key that created it; "" if it was created
            without a key.
    """

    id: str
    filename: str
    purpose: str
    bytes: int
    created_at: int
    expires_at: int | None = None
    space: str = "files"
    tenant: str = ""


Describe = Callable[[int], FileRecord]
"""Function that receives a file's size in bytes and returns the file's record."""


class FileStore(ABC):
    """Stores files. All methods are called on one event loop, which they must not block.

    Args:
        folder: folder to store the files in; None: the user chose no folder.
        options: an instance of the store's `Options`, passed by keyword, only to a store that has options.

    Raises:
        ConfigError: from the constructor: the folder cannot be used; the message gives the reason.
        KeyError: from every method with an id: no file has this id.
        StorageError: from every method: the operation is not possible now; nothing has changed.
        StorageFullError: from every method: the store has no space left; nothing has changed.
        StorageDamagedError: from every method: the store's own files are damaged; a retry does not help.
        ContentLostError: from `read`: the store lists the file, but its content is gone or damaged.
    """

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the component, set by `-o file_store.key=value`. A store with options overrides this."""

    @abstractmethod
    def __init__(self, folder: Path | None) -> None: ...

    @abstractmethod
    async def put(self, chunks: AsyncIterator[bytes], describe: Describe) -> FileRecord:
        """Store a file as its content arrives, replacing an older file with the same id.

        Once this returns, the complete file exists and survives a crash of the process. Until then, the new
        file does not exist.

        Args:
            chunks: the file's bytes.
            describe: function that returns the file's record, given the size in bytes. Called once, after the
                last chunk, because an upload's form fields may follow the file.

        Raises:
            Exception: any exception that `chunks` or `describe` raises; no part of the new file then remains,
                even after a crash.
            CancelledError: the task was cancelled; the new file exists completely, or not at all.
        """

    @abstractmethod
    async def get(self, file_id: str) -> FileRecord:
        """Return the record of a file."""

    @abstractmethod
    def read(self, file_id: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Yield the file's bytes from start to end (exclusive), in chunks of at most 1 MiB.

        A reader that has started gets all bytes, even if the file is deleted or replaced while it reads.
        """

    @abstractmethod
    async def list(
        self,
        *,
        space: str = "files",
        purpose: str | None = None,
        tenants: Collection[str] | None = None,
        after: str | None = None,
        limit: int,
        newest_first: bool = True,
    ) -> Sequence[FileRecord]:
        """Return at most `limit` files of a space, in the order of their ids.

        Args:
            purpose: purpose of the files to return; None: all purposes.
            tenants: owners of the files to return; None: all files.
            after: id of a file, which may no longer exist; only files with larger ids are returned.
        """

    @abstractmethod
    async def delete(self, file_id: str) -> None:
        """Remove a file."""

    @abstractmethod
    async def expired(self, now: float) -> Sequence[FileRecord]:
        """Return the files of all spaces that have expired by `now`.

        The store itself does not remove them.
        """

    @abstractmethod
    async def close(self) -> None:
        """Release the folder. No method may be called afterwards."""
