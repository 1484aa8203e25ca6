"""Reference model of a file store, and random operations for tests that compare a store with the model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from typing import Any

from hypothesis import strategies as st

from llmfw.core.interfaces.file_store import FileRecord, FileStore

from .stores import any_of

SPACES = ("files", "parts")
PURPOSES = ("batch", "user_data")
TENANTS = ("", "ann", "bob")
IDS = tuple(f"file-{number}" for number in range(6))


async def stream(*chunks: bytes) -> AsyncIterator[bytes]:
    """Yield the chunks of an upload."""
    for chunk in chunks:
        yield chunk


class BrokenError(Exception):
    """Exception that tests raise to interrupt an upload."""


async def breaking(*chunks: bytes) -> AsyncIterator[bytes]:
    """Yield chunks, then raise BrokenError."""
    for chunk in chunks:
        yield chunk
    raise BrokenError


def undescribed(size: int) -> FileRecord:
    """Raise BrokenError, as a `describe` callback does if an upload form lacks fields."""
    raise BrokenError


def record_of(id: str, size: int) -> FileRecord:
    """Return a file's record with default fields."""
    return FileRecord(id=id, filename="name", purpose="batch", bytes=size, created_at=1)


async def put(store: FileStore, id: str, data: bytes = b"data", **fields: Any) -> FileRecord:
    """Store a file in one chunk, with default values for all fields not given; return the file's record."""
    given = {"filename": "name.jsonl", "purpose": "batch", "created_at": 1, **fields}
    return await store.put(stream(data), lambda size: FileRecord(id=id, bytes=size, **given))


async def read(store: FileStore, id: str, start: int = 0, end: int | None = None) -> bytes:
    """Return the bytes [start, end) of a file."""
    return b"".join([piece async for piece in store.read(id, start, end)])


def ids(records: Iterable[FileRecord]) -> Sequence[str]:
    """Return the ids of records."""
    return [record.id for record in records]


class FileModel:
    """Reference model of a file store, made of a dictionary. Has the same methods as `StoreAdapter`."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[FileRecord, bytes]] = {}

    async def put(self, id: str, data: bytes, **fields: Any) -> FileRecord:
        self.files[id] = FileRecord(id=id, bytes=len(data), created_at=1, **fields), data
        return self.files[id][0]

    async def fail(self, id: str) -> None:
        pass

    async def get(self, id: str) -> FileRecord:
        return self.files[id][0]

    async def read(self, id: str, start: int, end: int | None) -> bytes:
        return self.files[id][1][start:end]

    async def delete(self, id: str) -> None:
        del self.files[id]

    async def list(
        self,
        space: str,
        purpose: str | None,
        tenants: Collection[str] | None,
        after: str | None,
        limit: int,
        newest_first: bool,
    ) -> Sequence[FileRecord]:
        found = [
            record
            for record, _ in self.files.values()
            if record.space == space
            and purpose in (None, record.purpose)
            and (tenants is None or record.tenant in tenants)
            and (after is None or (record.id < after if newest_first else record.id > after))
        ]
        return sorted(found, key=lambda record: record.id, reverse=newest_first)[:limit]

    async def all(self) -> Collection[tuple[FileRecord, bytes]]:
        return sorted(self.files.values(), key=lambda file: file[0].id)

    async def reopen(self) -> None:
        pass

    async def expired(self, now: int) -> Sequence[str]:
        return sorted(
            r.id for r, _ in self.files.values() if r.expires_at is not None and r.expires_at <= now
        )


class StoreAdapter:
    """Wraps a file store in the methods of the reference model, so that a test can compare the two."""

    def __init__(self, store: FileStore) -> None:
        self.store = store

    async def put(self, id: str, data: bytes, **fields: Any) -> FileRecord:
        return await put(self.store, id, data, **fields)

    async def fail(self, id: str) -> None:
        """Attempt a put whose `describe` callback raises."""

        def describe(size: int) -> FileRecord:
            raise ValueError(size)

        try:
            await self.store.put(stream(b"half", b"a file"), describe)
        except ValueError:
            return

    async def get(self, id: str) -> FileRecord:
        return await self.store.get(id)

    async def read(self, id: str, start: int, end: int | None) -> bytes:
        return await read(self.store, id, start, end)

    async def delete(self, id: str) -> None:
        await self.store.delete(id)

    async def list(self, **options: Any) -> Sequence[FileRecord]:
        return as_list(await self.store.list(**options))

    async def all(self) -> Collection[tuple[FileRecord, bytes]]:
        """Return all files, in ascending order of ids."""
        found = [record for space in SPACES for record in await self.store.list(space=space, limit=99)]
        return [(record, await read(self.store, record.id)) for record in sorted(found, key=lambda r: r.id)]

    async def reopen(self) -> None:
        """Do nothing: the test has already reopened the store."""

    async def expired(self, now: int) -> Sequence[str]:
        return sorted(ids(await self.store.expired(now)))


def as_list(records: Iterable[FileRecord]) -> Sequence[FileRecord]:
    """Return records as a list, since stores may return other sequences."""
    return [*records]


_ID = st.sampled_from(IDS)
_NUMBER = st.integers(0, 12)

OPERATIONS = any_of(
    {
        "put": {
            "id": _ID,
            "data": st.binary(max_size=12),
            "filename": st.text(st.characters(), max_size=5),
            "purpose": st.sampled_from(PURPOSES),
            "space": st.sampled_from(SPACES),
            "tenant": st.sampled_from(TENANTS),
            "expires_at": st.none() | _NUMBER,
        },
        "fail": {"id": _ID},
        "get": {"id": _ID},
        "read": {"id": _ID, "start": _NUMBER, "end": st.none() | _NUMBER},
        "delete": {"id": _ID},
        "list": {
            "space": st.sampled_from(SPACES),
            "purpose": st.sampled_from((None, *PURPOSES)),
            "tenants": st.none() | st.lists(st.sampled_from(TENANTS), unique=True),
            "after": st.none() | _ID,
            "limit": st.integers(1, 4),
            "newest_first": st.booleans(),
        },
        "expired": {"now": _NUMBER},
        "all": {},
        "reopen": {},
    }
)
