"""Uploads of files in parts. Their state is in the file store, too, so that it survives a restart.

The state of an upload is a small file in the space UPLOADS. Its parts are files in a space whose name is the
upload's id. Both expire like other files.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Iterator, Sequence

import msgspec
from msgspec import UNSET

from llmfw.api.access.ownership import Ownership
from llmfw.api.schemas.files import CompleteRequest, FileObject, Upload, UploadPart, UploadRequest
from llmfw.core.base.errors import ConflictError, NotFoundError, RequestError
from llmfw.core.base.ids import sortable_id
from llmfw.core.interfaces.file_store import FileRecord, FileStore

from .disk_space import DiskSpace
from .form import FileForm
from .limits import MAX_FILE_BYTES, MAX_PART_BYTES, check_anchor, check_filename, check_purpose, check_seconds
from .service import log_stored, new_record, object_of

logger = logging.getLogger(__name__)

UPLOADS = "uploads"
UPLOAD_PREFIX, PART_PREFIX = "upload_", "part_"
LIFETIME_S = 3600
GRACE_S = 3600
"""Seconds that parts outlive their upload, so that completing an upload just before it expires succeeds."""

PAGE = 1000


class UploadState(msgspec.Struct, kw_only=True):
    """The stored state of an upload.

    Attributes:
        status: "pending", "completed" or "cancelled".
        seconds: lifetime of the file, if the client set one.
        tenant: tenant that owns the upload, its parts and its file.
        file: record of the file, set before the file is stored. If the server crashes in between, the next
            attempt to complete the upload writes the same file.
    """

    id: str
    filename: str
    purpose: str
    bytes: int
    created_at: int
    expires_at: int
    seconds: int | None = None
    status: str = "pending"
    tenant: str = ""
    file: FileRecord | None = None


_decode_state = msgspec.json.Decoder(UploadState).decode


def part_form(chunks: AsyncIterator[bytes], boundary: str) -> FileForm:
    """Return the parser of the form that uploads one part of a file.

    Args:
        chunks: the request's body.
        boundary: the multipart boundary.
    """
    return FileForm(
        chunks, boundary, file_field="data", fields={}, max_file_bytes=MAX_PART_BYTES, needs_name=False
    )


class UploadService:
    """Creates, completes and cancels uploads of files in parts.

    Args:
        ownership: rules that decide which uploads a request may see. Other uploads do not exist for the
            request.
        space: check that keeps some disk space free; None: uploads may fill the disk.
    """

    def __init__(self, store: FileStore, ownership: Ownership, space: DiskSpace | None = None) -> None:
        self._store = store
        self._ownership = ownership
        self._space = space
        self._changing: set[str] = set()

    async def create(self, body: UploadRequest) -> Upload:
        """Start an upload; raise RequestError if a field is wrong."""
        now = int(time.time())
        state = UploadState(
            id=sortable_id(UPLOAD_PREFIX),
            filename=check_filename(body.filename, "filename"),
            purpose=check_purpose(body.purpose),
            bytes=_check_size(body.bytes),
            created_at=now,
            expires_at=now + LIFETIME_S,
            seconds=_seconds_of(body),
            tenant=self._ownership.tenant,
        )
        await self._keep(state)
        return _object_of(state)

    async def add_part(self, upload_id: str, form: FileForm) -> UploadPart:
        """Store a part of an upload as it arrives.

        Raises:
            RequestError: the upload does not exist or takes no more parts, or the form is wrong.
        """
        state = _open(await self._find(upload_id))
        content = self._space.guarded(form.content()) if self._space else form.content()
        part = await self._store.put(content, lambda size: _part_of(state, size))
        try:
            _open(await self._find(upload_id))  # the upload may have ended meanwhile
        except RequestError:
            await self._remove(part.id)
            raise
        return UploadPart(id=part.id, created_at=part.created_at, upload_id=upload_id)

    async def complete(self, upload_id: str, body: CompleteRequest) -> Upload:
        """Join parts into a file.

        Raises:
            RequestError: the upload does not exist or has ended; or the parts do not make up the announced
                file, and the upload stays open.
            ConflictError: another request is completing or cancelling the upload.
        """
        await self._find(upload_id)
        with self._change(upload_id):
            state = _open(await self._find(upload_id))
            parts = await self._parts(state, body.part_ids)
            state.file = state.file or new_record(
                state.filename, state.purpose, state.bytes, state.seconds, state.tenant
            )
            await self._keep(state)
            state.file = await self._join(parts, state.file, body.md5)
            log_stored(state.file)
            state.status = "completed"
            await self._keep(state)
            await self._remove_parts(state)
        return _object_of(state)

    async def cancel(self, upload_id: str) -> Upload:
        """Cancel an upload.

        Raises:
            RequestError: the upload does not exist or has ended.
            ConflictError: another request is completing or cancelling the upload.
        """
        await self._find(upload_id)
        with self._change(upload_id):
            state = _open(await self._find(upload_id))
            if state.file is not None and await self._is_there(state.file.id):
                # The server crashed after it stored the file. The file may be in use already.
                state.status = "completed"
            else:
                state.status, state.file = "cancelled", None
            await self._keep(state)
            await self._remove_parts(state)
            if state.file is not None:
                _open(state)
        return _object_of(state)

    @contextlib.contextmanager
    def _change(self, upload_id: str) -> Iterator[None]:
        """Lock an upload against other requests while the block runs; raise ConflictError if it is locked."""
        if upload_id in self._changing:
            raise ConflictError(
                f"upload {upload_id!r} is being completed or cancelled by another request; try again once that has ended",
                param="upload_id",
                code="upload_in_use",
                passing=True,
            )
        self._changing.add(upload_id)
        try:
            yield
        finally:
            self._changing.discard(upload_id)

    async def _find(self, upload_id: str) -> UploadState:
        try:
            record = await self._store.get(upload_id)
            if record.space == UPLOADS and self._ownership.may_see(record.tenant):
                return _decode_state(b"".join([piece async for piece in self._store.read(upload_id)]))
        except KeyError:
            pass
        raise NotFoundError(
            f"there is no upload {upload_id[:100]!r}; uploads expire after an hour", param="upload_id"
        )

    async def _keep(self, state: UploadState) -> None:
        async def chunks() -> AsyncIterator[bytes]:
            yield msgspec.json.encode(state)

        def describe(size: int) -> FileRecord:
            return FileRecord(
                id=state.id,
                filename=state.filename,
                purpose=state.purpose,
                bytes=size,
                created_at=state.created_at,
                expires_at=state.expires_at,
                space=UPLOADS,
                tenant=state.tenant,
            )

        await self._store.put(chunks(), describe)

    async def _parts(self, state: UploadState, part_ids: Sequence[str]) -> list[FileRecord]:
        """Return the parts that a client lists; raise RequestError if they do not make up the file."""
        found: dict[str, FileRecord] = {}
        for index, part_id in enumerate(part_ids):
            param = f"part_ids[{index}]"
            if part_id in found:
                raise RequestError(
                    f"{param} is {part_id!r}, which is there twice; name each part once", param=param
                )
            try:
                part = await self._store.get(part_id)
            except KeyError:
                part = None
            if part is None or part.space != state.id:
                raise RequestError(
                    f"{param} is {part_id[:100]!r}, which is no part of upload {state.id!r}; add it first",
                    param=param,
                )
            found[part_id] = part
        total = sum(part.bytes for part in found.values())
        if total != state.bytes:
            raise RequestError(
                f"the parts have {total} bytes together; the upload was announced with {state.bytes}",
                param="part_ids",
            )
        return list(found.values())

    async def _join(self, parts: Sequence[FileRecord], file: FileRecord, md5: str | None) -> FileRecord:
        """Store the joined parts as a file; raise RequestError if its MD5 digest differs from `md5`."""
        digest = hashlib.md5(usedforsecurity=False)

        async def chunks() -> AsyncIterator[bytes]:
            for part in parts:
                async for piece in self._store.read(part.id):
                    if md5 is not None:
                        digest.update(piece)
                    yield piece

        def describe(size: int) -> FileRecord:
            if md5 is not None and md5.strip().lower() != digest.hexdigest():
                raise RequestError(f"md5 is {md5[:100]!r}; the file's is {digest.hexdigest()}", param="md5")
            return msgspec.structs.replace(file, bytes=size)

        return await self._store.put(chunks(), describe)

    async def _remove_parts(self, state: UploadState) -> None:
        while found := await self._store.list(space=state.id, limit=PAGE):
            for part in found:
                await self._remove(part.id)

    async def _is_there(self, file_id: str) -> bool:
        try:
            await self._store.get(file_id)
        except KeyError:
            return False
        return True

    async def _remove(self, file_id: str) -> None:
        with contextlib.suppress(KeyError):
            await self._store.delete(file_id)


def _open(state: UploadState) -> UploadState:
    """Return an upload that is still open; raise RequestError if it has ended or expired."""
    status = "expired" if state.status == "pending" and state.expires_at <= time.time() else state.status
    if status == "pending":
        return state
    made = f"; its file is {state.file.id!r}" if state.file is not None and status == "completed" else ""
    raise RequestError(
        f"upload {state.id!r} is {status}{made}; create another one",
        param="upload_id",
        code=f"upload_{status}",
    )


def _part_of(state: UploadState, size: int) -> FileRecord:
    return FileRecord(
        id=sortable_id(PART_PREFIX),
        filename=state.filename,
        purpose=state.purpose,
        bytes=size,
        created_at=int(time.time()),
        expires_at=state.expires_at + GRACE_S,
        space=state.id,
        tenant=state.tenant,
    )


def _object_of(state: UploadState) -> Upload:
    file: FileObject | None = None if state.file is None else object_of(state.file)
    return Upload(
        id=state.id,
        bytes=state.bytes,
        created_at=state.created_at,
        filename=state.filename,
        purpose=state.purpose,
        status=state.status,
        expires_at=state.expires_at,
        file=UNSET if file is None else file,
    )


def _check_size(size: int) -> int:
    if not 1 <= size <= MAX_FILE_BYTES:
        raise RequestError(
            f"bytes is {size}; a file has from 1 to {MAX_FILE_BYTES} bytes ({MAX_FILE_BYTES // 2**20} MiB) here",
            param="bytes",
        )
    return size


def _seconds_of(body: UploadRequest) -> int | None:
    if body.expires_after is None:
        return None
    check_anchor(body.expires_after.anchor, "expires_after.anchor")
    return check_seconds(body.expires_after.seconds, "expires_after.seconds")
