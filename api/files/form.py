"""Parses a multipart/form-data body with one file as it arrives: the file is never in memory as a whole.

Does not depend on the meaning of the fields or the destination of the file.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

from multipart import (
    MultipartError,
    MultipartSegment,
    ParserLimitReached,
    PushMultipartParser,
    parse_options_header,
)

from llmfw.core.base.errors import RequestError, TooLargeError

from .disposition import read_parameters

MEDIA_TYPE = "multipart/form-data"
MAX_FIELD_BYTES = 4096
MAX_OVERHEAD = 2**18
"""Maximum size of a form without its file, in bytes."""

MAX_PART_HEADER_BYTES = 4224
"""Maximum size of each header of a form part, in bytes. One header contains the file's name."""

PIECE = 2**18
"""Minimum number of bytes to pass on at once, except at the end of the file."""

_BROKEN = "invalid_multipart"
_PLAIN_ENCODINGS = ("", "binary", "8bit", "7bit")


def boundary_of(content_type: str) -> str:
    """Return the multipart boundary that a content-type header names.

    Args:
        content_type: value of the header.

    Raises:
        RequestError: the header names no boundary.
    """
    boundary: str = parse_options_header(content_type)[1].get("boundary", "")
    if not boundary:
        raise RequestError(
            f"content-type names no boundary; send '{MEDIA_TYPE}; boundary=…', as HTTP clients do by themselves",
            code=_BROKEN,
        )
    return boundary


class FileForm:
    """Streaming parser of a form with one file.

    Args:
        chunks: the request's body.
        boundary: the multipart boundary.
        file_field: name of the field with the file; the file is required.
        fields: name of each other field → function that takes its value and raises RequestError if it is
            wrong.
        max_file_bytes: maximum size of the file, in bytes.
        needs_name: whether the file must have a file name.

    Attributes:
        filename: name of the file, as the client gave it; "" until it is known.
        values: values of the other fields so far.
    """

    def __init__(
        self,
        chunks: AsyncIterator[bytes],
        boundary: str,
        *,
        file_field: str,
        fields: Mapping[str, Callable[[str], Any]],
        max_file_bytes: int,
        needs_name: bool = True,
    ) -> None:
        self.filename = ""
        self.values: dict[str, str] = {}
        self._chunks = chunks
        self._boundary = boundary
        self._file_field = file_field
        self._checks = fields
        self._max_file_bytes = max_file_bytes
        self._needs_name = needs_name
        self._seen: set[str] = set()
        self._reading = ""  # name of the field that is being read
        self._value = bytearray()
        self._file_bytes = 0

    async def content(self) -> AsyncIterator[bytes]:
        """Yield the file's bytes. After the last ones, the form is complete, and `values` has all its fields.

        Raises:
            RequestError: the form is broken, or a field is missing, wrong, unknown or duplicate.
            TooLargeError: the file is too large.
        """
        parser = self._parser()
        pending = bytearray()
        received = 0
        async for chunk in self._chunks:
            received += len(chunk)
            if received > self._max_file_bytes + MAX_OVERHEAD:
                raise self.too_large()
            for piece in self._pieces(parser, chunk):
                pending += piece
            if len(pending) >= PIECE:
                yield bytes(pending)
                pending.clear()
        self._end(parser)
        if pending:
            yield bytes(pending)

    def too_large(self) -> TooLargeError:
        """Return the error for a file that is too large. It names the limit."""
        limit = self._max_file_bytes
        return TooLargeError(
            f"{self._file_field} may have at most {limit} bytes ({limit // 2**20} MiB)",
            param=self._file_field,
        )

    def _parser(self) -> PushMultipartParser:
        try:
            return PushMultipartParser(self._boundary, max_header_size=MAX_PART_HEADER_BYTES)
        except MultipartError as error:
            raise _broken(error) from error

    def _pieces(self, parser: PushMultipartParser, chunk: bytes) -> Iterator[bytes]:
        """Yield the file's bytes in a chunk; collect the bytes of other fields."""
        try:
            for event in parser.parse(chunk) if chunk else ():
                if isinstance(event, MultipartSegment):
                    self._begin(event)
                elif event is None:
                    self._finish()
                elif self._reading == self._file_field:
                    self._file_bytes += len(event)
                    if self._file_bytes > self._max_file_bytes:
                        raise self.too_large()
                    yield event
                else:
                    self._extend(event)
        except MultipartError as error:
            raise _broken(error) from error

    def _begin(self, segment: MultipartSegment) -> None:
        """Start a field; raise RequestError if it is unknown or duplicate."""
        parameters = read_parameters(segment.header("Content-Disposition", ""))
        name = parameters.get("name", "")
        known = (self._file_field, *self._checks)
        if name not in known:
            raise RequestError(
                f"the form has a field {name[:100]!r}; its fields are {', '.join(known)}", param=name or None
            )
        if name in self._seen:
            raise RequestError(f"the form has the field {name!r} twice; send it once", param=name)
        encoding = segment.header("Content-Transfer-Encoding", "").strip().lower()
        if encoding not in _PLAIN_ENCODINGS:
            raise RequestError(
                f"{name} is sent with content-transfer-encoding {encoding[:100]!r}; send its bytes as they are",
                param=name,
            )
        self._seen.add(name)
        self._reading = name
        if name == self._file_field:
            self.filename = parameters.get("filename", "")
            if self._needs_name and not self.filename:
                raise RequestError(f"{name} has no filename; a file needs one, any will do", param=name)

    def _extend(self, piece: bytes) -> None:
        self._value += piece
        if len(self._value) > MAX_FIELD_BYTES:
            raise RequestError(
                f"{self._reading} has more than {MAX_FIELD_BYTES} bytes; send less", param=self._reading
            )

    def _finish(self) -> None:
        """End a field; raise RequestError if its value is wrong."""
        name, self._reading = self._reading, ""
        if name == self._file_field:
            if not self._file_bytes:
                raise RequestError(f"{name} is empty; a file has at least one byte", param=name)
            return
        try:
            value = self._value.decode()
        except UnicodeDecodeError as error:
            raise RequestError(f"{name} is not a text in UTF-8; send it in UTF-8", param=name) from error
        self._value.clear()
        self._checks[name](value)
        self.values[name] = value

    def _end(self, parser: PushMultipartParser) -> None:
        """End the form; raise RequestError if it is truncated or has no file."""
        try:
            parser.close()
        except MultipartError as error:
            raise _broken(error) from error
        if self._file_field not in self._seen:
            raise RequestError(f"{self._file_field} is missing; it is required", param=self._file_field)


def _broken(error: MultipartError) -> RequestError:
    detail = str(error.args[0]) if error.args else type(error).__name__
    if "segment header" in detail and isinstance(error, ParserLimitReached):
        return RequestError(
            f"a part of the form has headers of more than {MAX_PART_HEADER_BYTES} bytes, or too many; is its file name "
            "too long?",
            code=_BROKEN,
        )
    return RequestError(f"the form is not what {MEDIA_TYPE} says: {detail[:200]}", code=_BROKEN)
