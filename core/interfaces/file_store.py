"""The interface of a file store: bytes by id, with what is known of them.

Ids are made by the server and are the only names by which anything is found: a client's file name is data. A store
knows nothing of what is in a file, nor what files are for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from pathlib import Path

import msgspec


class FileRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a stored file.

    Attributes:
        id: made by the server, and sorts by when it was made; ASCII letters, digits, `-` and `_`.
        filename: as the client wrote it: any text, also with a NUL, a slash or a lone surrogate.
        bytes: its size.
        created_at, expires_at: seconds since the epoch; expires_at is None for what stays.
        space: listings are of one space. What clients see is in "files"; what the server keeps for itself, such as
            the parts of an upload, is in others.
        tenant: that it belongs to: the name of the API key that made it; "": it was made without one.
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
"""Given how many bytes a file has, returns what is known of it."""


class FileStore(ABC):
    """Keeps files. All methods are called on one event loop, which they do not hold up.

    Args:
        folder: to keep them in; None where the user named none.
        options: given by this name, and only to a store that has some: an instance of its `Options`.

    Raises:
        ConfigError: from the constructor: the folder cannot be used, with the reason.
        KeyError: from every method that is given an id: it is not there.
        StorageError: from every method: the store cannot do it now; nothing has changed.
        StorageFullError: there is no room for it; nothing has changed.
        ContentLostError: from `read`: the store knows the file, and its bytes are gone or damaged.
    """

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the part, set by `-o file_store.key=value`. A store with options overrides this."""

    @abstractmethod
    def __init__(self, folder: Path | None) -> None: ...

    @abstractmethod
    async def put(self, chunks: AsyncIterator[bytes], describe: Describe) -> FileRecord:
        """Store a file as it arrives, in place of an older one of its id.

        It is there once this returns, whole, and survives a crash of the process; before that it is not there at all.

        Args:
            chunks: its bytes.
            describe: called once, after the last chunk: what comes after a file in a form belongs to it, too.

        Raises:
            Exception: what chunks and describe raise; then nothing remains of it, nor after a crash of the process.
            CancelledError: the task was cancelled; it is there whole, or not at all.
        """

    @abstractmethod
    async def get(self, file_id: str) -> FileRecord:
        """Return what is known of a file."""

    @abstractmethod
    def read(self, file_id: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Return the file's bytes from start to end (exclusive), in pieces of at most a mebibyte.

        Who has begun to read goes on to the end, also when the file is deleted or replaced meanwhile.
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
            purpose: only those of this one; None: all.
            tenants: only files that belong to one of these; None: all files.
            after: only those that come after this id, which need not be there any more.
        """

    @abstractmethod
    async def delete(self, file_id: str) -> None:
        """Remove a file."""

    @abstractmethod
    async def expired(self, now: float) -> Sequence[FileRecord]:
        """Return the files of all spaces that are to be gone at this time. The store removes none by itself."""

    @abstractmethod
    async def close(self) -> None:
        """Release the folder. Nothing may be called afterwards."""
