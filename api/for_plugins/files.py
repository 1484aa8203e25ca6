"""Implements `CallerFiles` with the service of the routes under /v1/files."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from llmfw.api.files.limits import MAX_FILE_BYTES, check_filename, check_purpose
from llmfw.api.files.service import FileService
from llmfw.core.base.errors import TooLargeError
from llmfw.core.interfaces.file_store import FileRecord
from llmfw.core.interfaces.route_services import CallerFiles

PAGE = 100


class OwnFiles(CallerFiles):
    """The files that the caller's key may see.

    Args:
        service: service that keeps tenants apart.
    """

    def __init__(self, service: FileService) -> None:
        self._service = service

    async def create(self, filename: str, purpose: str, content: AsyncIterator[bytes]) -> FileRecord:
        """Store a file that belongs to the caller."""
        name, purpose = check_filename(filename, "filename"), check_purpose(purpose)
        return await self._service.store(_limited(content), name, purpose)

    async def list(self, *, purpose: str | None = None, after: str | None = None) -> Sequence[FileRecord]:
        """Return up to PAGE files, the oldest first."""
        return await self._service.records(purpose, after=after, limit=PAGE, newest_first=False)

    async def get(self, file_id: str) -> FileRecord:
        """Return the record of a file."""
        return await self._service.find(file_id)

    async def read(self, file_id: str) -> AsyncGenerator[bytes, None]:
        """Yield the content of a file in pieces."""
        record = await self._service.find(file_id)
        async for piece in self._service.read(file_id, 0, record.bytes):
            yield piece

    async def delete(self, file_id: str) -> None:
        """Remove a file."""
        await self._service.delete(file_id)


async def _limited(content: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield a file's content; raise TooLargeError beyond the limit of uploads."""
    size = 0
    async for piece in content:
        size += len(piece)
        if size > MAX_FILE_BYTES:
            raise TooLargeError(
                f"a file may have at most {MAX_FILE_BYTES} bytes ({MAX_FILE_BYTES // 2**20} MiB)",
                param="content",
            )
        yield piece
