"""Forms as clients send them, and what is read of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence

from llmfw.api.files.form import FileForm
from llmfw.api.files.service import file_form

BOUNDARY = "b0undary"
PURPOSE = ("purpose", b"batch")


def part(name: str, content: bytes, filename: str | None = None, *headers: str) -> bytes:
    """Return one field of a form, up to the next boundary."""
    named = "" if filename is None else f'; filename="{filename}"'
    lines = [f'Content-Disposition: form-data; name="{name}"{named}', *headers, "", ""]
    return f"--{BOUNDARY}\r\n".encode() + "\r\n".join(lines).encode() + content + b"\r\n"


def form(*parts: bytes) -> bytes:
    """Return a form of such fields."""
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def upload_form(content: bytes = b"x", *fields: tuple[str, bytes], filename: str = "a.jsonl") -> bytes:
    """Return a form with a file and other fields, of which the purpose is one if none is given."""
    return form(*(part(*field) for field in fields or [PURPOSE]), part("file", content, filename))


def cut(body: bytes, places: Iterable[int]) -> list[bytes]:
    """Return a body in pieces."""
    ends = sorted({place % (len(body) + 1) for place in places} | {len(body)})
    return [body[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def read(chunks: Sequence[bytes], boundary: str = BOUNDARY) -> tuple[bytes, FileForm]:
    """Return the file of a form that comes in these chunks, and the form."""

    async def arriving() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    async def content() -> tuple[bytes, FileForm]:
        read_form = file_form(arriving(), boundary)
        return b"".join([piece async for piece in read_form.content()]), read_form

    return asyncio.run(content())
