"""Reads uploaded files as images of requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from llmfw.core.base.errors import NotFoundError, RequestError
from llmfw.core.media.limits import ImageRefusedError

from .service import FileService

PURPOSE = "vision"
"""Purpose of files that requests may name as images."""


def image_file_reader(files: FileService | None) -> Callable[[str, int], Awaitable[bytes]]:
    """Return a function that reads an image file, given the file's id and a maximum size in bytes.

    The function raises NotFoundError if the current request may not see the file, RequestError if the file
    has another purpose, and ImageRefusedError if the file has too many bytes.

    Args:
        files: the files; None: there are none.
    """

    async def read(file_id: str, most: int) -> bytes:
        if files is None:
            raise NotFoundError(f"there is no file {file_id[:100]!r}", param="file_id")
        record = await files.find(file_id)
        if record.purpose != PURPOSE:
            raise RequestError(
                f"file {record.id!r} has the purpose {record.purpose!r}; images need {PURPOSE!r}: upload it with that"
            )
        if record.bytes > most:
            raise ImageRefusedError(
                "bytes",
                f"has {record.bytes} bytes; at most {most} are allowed: scale it down, or compress it more",
            )
        return b"".join([piece async for piece in files.read(file_id, 0, record.bytes)])

    return read
