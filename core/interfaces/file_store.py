"""The interface of a file store: bytes by id, with their metadata.

The server creates the ids, which are the only names of files: a client's file name is data. A store knows neither the
contents nor the purpose of files.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from pathlib import Path

import msgspec


class FileRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Metadata of a stored file.

    Attributes:
        id: id that the server creates, and that sorts by time of creation; ASCII letters, digits, `-` and `_`.
        filename: the client's name for it: any text, even with a NUL, a slash or a lone surrogate.
        bytes: its size.
        created_at, expires_at: seconds since the epoch; expires_at is None if it does not expire.
        space: space that lists it. Clients' files are in "files"; files of the server itself, such as the parts of an
            upload, are in others.
        tenant: tenant that owns it: the name of the API key that created it; "" if it was created without one.
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
"""Function from a file's size in bytes to its record."""


class FileStore(ABC):
    """Stores files. All methods are called on one event loop, which they must not block.

    Args:
        folder: folder to store them in; None if the user named none.
        options: an instance of its `Options`, passed by this name, only to a store that has options.

    Raises:
        ConfigError: from the constructor: the folder cannot be used; the message gives the reason.
        KeyError: from every method with an id: no file has this id.
        StorageError: from every method: the store cannot do it now; nothing has changed.
        StorageFullError: the store has no space for it; nothing has changed.
        ContentLostError: from `read`: the store knows the file, but its bytes are gone or damaged.
    """

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the component, set by `-o file_store.key=value`. A store with options overrides this."""

    @abstractmethod
    def __init__(self, folder: Path | None) -> None: ...

    @abstractmethod
    async def put(self, chunks: AsyncIterator[bytes], describe: Describe) -> FileRecord:
        """Store a file as it arrives, replacing an older one with its id.

        Once this returns, the complete file exists and survives a crash of the process. Before, it does not exist at all.

        Args:
            chunks: the file's bytes.
            describe: function called once, after the last chunk, because form fields may follow the file.

        Raises:
            Exception: any exception of chunks or describe; then nothing of the file remains, even after a crash.
            CancelledError: the task was cancelled; the file exists completely, or not at all.
        """

    @abstractmethod
    async def get(self, file_id: str) -> FileRecord:
        """Return the record of a file."""

    @abstractmethod
    def read(self, file_id: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Return the file's bytes from start to end (exclusive), in pieces of at most a mebibyte.

        A reader that has started gets all bytes, even if the file is deleted or replaced meanwhile.
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
            after: id, which may no longer exist; only files after it in the order are returned.
        """

    @abstractmethod
    async def delete(self, file_id: str) -> None:
        """Remove a file."""

    @abstractmethod
    async def expired(self, now: float) -> Sequence[FileRecord]:
        """Return the files of all spaces that have expired at this time. The store itself removes none."""

    @abstractmethod
    async def close(self) -> None:
        """Release the folder. Nothing may be called afterwards."""
