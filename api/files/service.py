"""Stores, lists, reads and removes clients' files.

Does not depend on HTTP, or on the kind of store.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from msgspec import UNSET

from llmfw.api.access.ownership import Ownership
from llmfw.api.http.cursor_page import PageQuery, page_of
from llmfw.api.schemas.files import DeletedFile, FileList, FileObject
from llmfw.core.base.errors import ConflictError, NotFoundError, RequestError
from llmfw.core.base.ids import sortable_id
from llmfw.core.interfaces.batch_store import BatchStore
from llmfw.core.interfaces.file_store import Describe, FileRecord, FileStore

from .disk_space import DiskSpace
from .form import FileForm
from .in_use import SETTLING, inputs_in_use
from .limits import (
    ANCHOR,
    MAX_FILE_BYTES,
    check_anchor,
    check_listed_purpose,
    check_purpose,
    check_seconds,
    lifetime_of,
)

logger = logging.getLogger(__name__)

FILE_PREFIX = "file-"
FILES = "files"
"""The store's space for the files that clients see."""

EXPIRED_AT_ONCE = 50
"""Maximum number of expired files to remove before the lock is released for other callers."""

_ANCHOR_FIELD, _SECONDS_FIELD = "expires_after[anchor]", "expires_after[seconds]"


def file_form(chunks: AsyncIterator[bytes], boundary: str) -> FileForm:
    """Return the parser of the form that uploads a file.

    Args:
        chunks: the request's body.
        boundary: the multipart boundary.
    """
    return FileForm(
        chunks,
        boundary,
        file_field="file",
        fields={
            "purpose": check_purpose,
            _ANCHOR_FIELD: lambda value: check_anchor(value, _ANCHOR_FIELD),
            _SECONDS_FIELD: lambda value: check_seconds(value, _SECONDS_FIELD),
        },
        max_file_bytes=MAX_FILE_BYTES,
    )


def object_of(record: FileRecord) -> FileObject:
    """Return OpenAI's file object for a record."""
    return FileObject(
        id=record.id,
        bytes=record.bytes,
        created_at=record.created_at,
        filename=record.filename,
        purpose=record.purpose,
        expires_at=UNSET if record.expires_at is None else record.expires_at,
    )


def new_record(filename: str, purpose: str, size: int, seconds: int | None, tenant: str) -> FileRecord:
    """Return the record of a file that a client has uploaded completely.

    Args:
        size: size in bytes.
        seconds: lifetime, if the client set one.
        tenant: tenant that owns the file.
    """
    now = int(time.time())
    lifetime = lifetime_of(purpose, seconds)
    return FileRecord(
        id=sortable_id(FILE_PREFIX),
        filename=filename,
        purpose=purpose,
        bytes=size,
        created_at=now,
        expires_at=None if lifetime is None else now + lifetime,
        tenant=tenant,
    )


def log_stored(record: FileRecord) -> None:
    """Log that a file was stored, without its name, which is private to the client."""
    logger.info("Stored %s: %d bytes, purpose %s", record.id, record.bytes, record.purpose)


class FileService:
    """Stores, lists, reads and removes clients' files.

    Args:
        batches: store of the batch jobs; a job's input file is not removed before the job ends.
        ownership: rules that decide which files a request may see. Other files do not exist for the request.
        space: check that keeps some disk space free; None: uploads may fill the disk.

    Attributes:
        deleting: lock held while a file is checked and removed. Callers that look up a file and then create
            an object that needs the file must hold the lock, too.
    """

    def __init__(
        self, store: FileStore, batches: BatchStore, ownership: Ownership, space: DiskSpace | None = None
    ) -> None:
        self.deleting = asyncio.Lock()
        self._store = store
        self._batches = batches
        self._ownership = ownership
        self._space = space

    async def upload(self, form: FileForm) -> FileObject:
        """Store the file of a form as it arrives.

        Raises:
            RequestError: the form is wrong; nothing was stored.
            StorageError: the file cannot be stored; nothing was stored.
        """
        tenant = self._ownership.tenant
        return object_of(await self._put(form.content(), lambda size: _record_of(form, size, tenant)))

    async def store(self, content: AsyncIterator[bytes], filename: str, purpose: str) -> FileRecord:
        """Store a file that belongs to the current request's tenant, with the purpose's default lifetime.

        Raises:
            StorageError: the file cannot be stored; nothing was stored.
        """
        tenant = self._ownership.tenant
        return await self._put(content, lambda size: new_record(filename, purpose, size, None, tenant))

    async def _put(self, content: AsyncIterator[bytes], describe: Describe) -> FileRecord:
        if self._space:
            content = self._space.guarded(content)
        record = await self._store.put(content, describe)
        log_stored(record)
        return record

    async def list(self, query: PageQuery, purpose: str | None) -> FileList:
        """Return a page of files, of one purpose or of all (None)."""
        found = await self.records(
            purpose, after=query.after, limit=query.fetch, newest_first=query.newest_first
        )
        return FileList(**page_of([object_of(record) for record in found], query))

    async def records(
        self, purpose: str | None, *, after: str | None, limit: int, newest_first: bool
    ) -> Sequence[FileRecord]:
        """Return records of files that the current request may see, in the order of their ids."""
        return await self._store.list(
            space=FILES,
            purpose=check_listed_purpose(purpose),
            tenants=self._ownership.visible(),
            after=after,
            limit=limit,
            newest_first=newest_first,
        )

    async def get(self, file_id: str) -> FileObject:
        """Return a file; raise NotFoundError if it does not exist."""
        return object_of(await self.find(file_id))

    async def find(self, file_id: str) -> FileRecord:
        """Return the record of a file; raise NotFoundError if it does not exist or is another tenant's."""
        try:
            record = await self._store.get(file_id)
        except KeyError:
            raise _not_found(file_id) from None
        # Clients also know the ids of upload parts, which are not files to them.
        if record.space != FILES or not self._ownership.may_see(record.tenant):
            raise _not_found(file_id)
        return record

    async def read(self, file_id: str, start: int, end: int) -> AsyncGenerator[bytes, None]:
        """Yield a file's bytes from start to end (exclusive); raise NotFoundError if it no longer exists."""
        pieces = self._store.read(file_id, start, end)
        try:
            async for piece in pieces:
                yield piece
        except KeyError:
            raise _not_found(file_id) from None

    async def delete(self, file_id: str) -> DeletedFile:
        """Remove a file.

        Raises:
            NotFoundError: the file does not exist.
            ConflictError: an unfinished batch job needs the file.
        """
        async with self.deleting:
            record = await self.find(file_id)
            job = (await inputs_in_use(self._batches)).get(file_id)
            if job is not None:
                settling = job.status in SETTLING
                advice = "try again in a moment" if settling else "cancel it, or wait until it has ended"
                seen = self._ownership.may_see(job.tenant)
                batch = f"batch {job.id!r}" if seen else "another tenant's batch"
                raise ConflictError(
                    f"file {file_id!r} is the input of {batch}, which is {job.status}; {advice}",
                    param="file_id",
                    code="file_in_use",
                    passing=settling,
                )
            await self._remove(record)
        return DeletedFile(id=file_id)

    async def remove_expired(self, now: float) -> int:
        """Remove all files that have expired at `now`, including parts of uploads.

        Keeps inputs of unfinished jobs.

        Returns:
            The number of removed files.
        """
        expired = await self._store.expired(now)
        num_removed = 0
        for start in range(0, len(expired), EXPIRED_AT_ONCE):
            async with self.deleting:  # released between groups: creating a batch waits for it
                needed = await inputs_in_use(self._batches)
                for record in expired[start : start + EXPIRED_AT_ONCE]:
                    if record.id not in needed:
                        with contextlib.suppress(NotFoundError):  # an upload may have removed its part
                            await self._remove(record)
                            num_removed += 1
        return num_removed

    async def _remove(self, record: FileRecord) -> None:
        try:
            await self._store.delete(record.id)
        except KeyError:
            raise _not_found(record.id) from None
        if record.space == FILES:
            logger.info("Removed %s: %d bytes, purpose %s", record.id, record.bytes, record.purpose)


def _record_of(form: FileForm, size: int, tenant: str) -> FileRecord:
    """Return the record of a complete form's file; raise RequestError if a field is missing."""
    if "purpose" not in form.values:
        raise RequestError("purpose is missing; it is required", param="purpose")
    given = [name for name in (_ANCHOR_FIELD, _SECONDS_FIELD) if name in form.values]
    if given == [_SECONDS_FIELD]:
        raise RequestError(f"{_ANCHOR_FIELD} is missing; it must be {ANCHOR!r}", param=_ANCHOR_FIELD)
    if given == [_ANCHOR_FIELD]:
        raise RequestError(f"{_SECONDS_FIELD} is missing; {_ANCHOR_FIELD} requires it", param=_SECONDS_FIELD)
    seconds = int(form.values[_SECONDS_FIELD]) if given else None
    return new_record(form.filename, form.values["purpose"], size, seconds, tenant)


def _not_found(file_id: str) -> NotFoundError:
    return NotFoundError(f"there is no file {file_id[:100]!r}", param="file_id")
