"""Reads the lines of a job's input file in pieces. Does not parse them.

Memory holds at most one piece of the file and the line that crosses the piece's end. Reading yields to the
event loop after each millisecond of work.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator

from llmfw.core.base.errors import ContentLostError, LLMFWError
from llmfw.core.interfaces.file_store import FileStore

MAX_LINE = 64 * 2**20
SLICE_S = 0.001
BOM = b"\xef\xbb\xbf"


class InputGoneError(LLMFWError):
    """The input file or its content no longer exists."""


class LongLine:
    """Placeholder for a line longer than MAX_LINE, whose bytes were discarded."""


async def read_lines(files: FileStore, file_id: str) -> AsyncGenerator[tuple[int, bytes | LongLine], None]:
    """Yield the number (from 1) and the bytes, without the line break, of each line that is not blank.

    Raises:
        InputGoneError: the file or its content no longer exists.
        StorageError: the file cannot be read now.
    """
    splitter = LineSplitter()
    until = time.perf_counter() + SLICE_S
    pieces = files.read(file_id)
    try:
        async for piece in pieces:
            for found in splitter.feed(piece):
                yield found
                if time.perf_counter() > until:
                    await asyncio.sleep(0)
                    until = time.perf_counter() + SLICE_S
    except KeyError as error:
        raise InputGoneError(f"the input file {file_id!r} is not there any more; upload it again") from error
    except ContentLostError as error:
        raise InputGoneError(
            f"the server has lost the content of the input file {file_id!r}: upload it again"
        ) from error
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()
    for found in splitter.finish():
        yield found


class LineSplitter:
    """Splits pieces into lines. A line ends with LF or CRLF; the last line may end without either."""

    def __init__(self, max_line: int = MAX_LINE) -> None:
        self._max_line = max_line
        self._number = 0
        self._begun: list[bytes] = []  # pieces of the line whose end has not arrived
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[tuple[int, bytes | LongLine]]:
        """Add a piece, and yield the lines that end in it."""
        start = 0
        while (end := piece.find(b"\n", start)) >= 0:
            self._add(piece[start:end])
            yield from self._line()
            start = end + 1
        self._add(piece[start:])

    def finish(self) -> Iterator[tuple[int, bytes | LongLine]]:
        """Yield the last line if it does not end with a line break."""
        if self._size:
            yield from self._line()

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= self._max_line:
            self._begun.append(part)
        else:
            self._begun.clear()

    def _line(self) -> Iterator[tuple[int, bytes | LongLine]]:
        self._number += 1
        too_long, line = self._size > self._max_line, b"".join(self._begun)
        self._begun.clear()
        self._size = 0
        if too_long:
            yield self._number, LongLine()
            return
        if self._number == 1:
            line = line.removeprefix(BOM)
        if line and not line.isspace():
            yield self._number, line.removesuffix(b"\r")
