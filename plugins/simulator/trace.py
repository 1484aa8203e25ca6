"""Reads traces: requests with their arrival times, lengths and the ids of their prompts' blocks.

Supports Mooncake's public format, one JSON object per line, and the output of `llmfw serve
--record-requests`, which has the same fields and additional, optional ones. A trace has no tokens, only ids
of blocks: equal ids mean equal prefixes. For tokens, see `tokens`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt

from .errors import SimulatorError

MOONCAKE_BLOCK = 512
Blocks = npt.NDArray[np.int32]
_Count = Annotated[int, msgspec.Meta(ge=1)]


class Line(msgspec.Struct, frozen=True):
    """One line of a trace file. Unknown fields are ignored.

    Attributes:
        timestamp: arrival, in milliseconds since any point in time.
        input_length, output_length: number of tokens. A request with no output is replayed with one output
            token.
        hash_ids: ids of the prompt's blocks; the last block may be partial.
        block_size: tokens in a block; None: the `block_size` of `read_trace`.
        output_hash_ids: ids of the blocks of prompt and output together, starting at the first block that the
            prompt does not fill.
        max_tokens: limit that the client set; None: the length of the output.
        priority, tenant, cache_salt, deferrable: as in `llmfw.core.Request`.
        page_size: tokens in a page of the server that recorded the line.
    """

    timestamp: float
    input_length: _Count
    output_length: Annotated[int, msgspec.Meta(ge=0)]
    hash_ids: list[int]
    block_size: _Count | None = None
    output_hash_ids: list[int] = []
    max_tokens: _Count | None = None
    priority: int = 0
    tenant: int | str = 0
    cache_salt: str = ""
    deferrable: bool = False
    page_size: _Count | None = None


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request of a trace.

    Attributes:
        number: index in the order of arrival.
        arrival_s: arrival, in seconds since the first request's.
        prompt_len, output_len: number of tokens.
        max_tokens: limit that the client set; at least `output_len`.
        blocks: numbers of the prompt's blocks; equal numbers mean equal prefixes.
        output_blocks: numbers of the blocks of prompt + output, starting with block `prompt_len //
            block_size`; empty if the trace does not record the output.
        block_size: tokens in a block.
        page_size: tokens in a page of the server that recorded the request; None: not known.
    """

    number: int
    arrival_s: float
    prompt_len: int
    output_len: int
    max_tokens: int
    blocks: Blocks
    output_blocks: Blocks
    block_size: int
    priority: int
    tenant: str
    salt: str
    deferrable: bool
    page_size: int | None = None

    @property
    def length(self) -> int:
        """Number of tokens in prompt and output."""
        return self.prompt_len + self.output_len


def read_trace(
    path: Path, *, limit: int | None = None, block_size: int = MOONCAKE_BLOCK
) -> list[TraceRequest]:
    """Return a trace's requests in the order of arrival; simultaneous requests are in the order of the file.

    Args:
        path: path of the trace file.
        limit: number of lines to read; None: all.
        block_size: tokens in a block, for lines without `block_size`.

    Raises:
        SimulatorError: the file cannot be read, is empty, or has an invalid line; the message names line and
            field.
    """
    lines = list(islice(_lines(path, block_size), limit))
    if not lines:
        raise SimulatorError(f"{path}: there is no request in it")
    lines.sort(key=lambda line: line.timestamp)  # recordings are in the order in which requests ended
    numbers: dict[tuple[int, int], int] = {}
    first = lines[0].timestamp
    return [_request(i, line, line.timestamp - first, block_size, numbers) for i, line in enumerate(lines)]


def recorded_page_size(trace: Iterable[TraceRequest]) -> int | None:
    """Return the page size of the server that recorded a trace; None if the trace does not name one.

    Raises:
        SimulatorError: the requests name several page sizes.
    """
    sizes = {request.page_size for request in trace} - {None}
    if len(sizes) > 1:
        listed = ", ".join(map(str, sorted(size for size in sizes if size)))
        raise SimulatorError(
            f"the trace was recorded with pages of {listed} tokens; choose one with --page-size"
        )
    return next(iter(sizes), None)


def _lines(path: Path, block_size: int) -> Iterator[Line]:
    decoder = msgspec.json.Decoder(Line)
    try:
        if path.is_char_device():
            raise SimulatorError(f"{path} is a device, which has no end; give a file")
        with path.open("rb") as file:
            for number, text in enumerate(file, 1):
                if text.strip():
                    yield _line(decoder, text, f"{path}:{number}", block_size)
    except OSError as error:
        raise SimulatorError(f"{path} cannot be read: {error.strerror}") from error


def _line(decoder: msgspec.json.Decoder[Line], text: bytes, where: str, block_size: int) -> Line:
    try:
        line = decoder.decode(text)
    except msgspec.ValidationError as error:
        raise SimulatorError(f"{where}: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SimulatorError(f"{where} is not JSON: {error}") from error
    size = line.block_size or block_size
    whole, partial = divmod(line.input_length, size)
    _check_blocks(
        where, "hash_ids", line.hash_ids, whole + (partial > 0), f"input_length {line.input_length}", size
    )
    if line.output_hash_ids:
        total = line.input_length + line.output_length
        of = f"input_length + output_length {total}, from block {whole} on,"
        _check_blocks(where, "output_hash_ids", line.output_hash_ids, -(-total // size) - whole, of, size)
    if line.max_tokens is not None and line.max_tokens < line.output_length:
        raise SimulatorError(
            f"{where}: max_tokens is {line.max_tokens}, less than output_length {line.output_length}"
        )
    return line


def _check_blocks(where: str, field: str, ids: list[int], expected: int, of: str, size: int) -> None:
    if len(ids) != expected:
        raise SimulatorError(
            f"{where}: {field} has {len(ids)} blocks; {of} has {expected} of {size} tokens (see --block-size)"
        )


def _request(
    number: int, line: Line, milliseconds: float, block_size: int, numbers: dict[tuple[int, int], int]
) -> TraceRequest:
    size = line.block_size or block_size

    def dense(ids: list[int]) -> Blocks:
        # Blocks with the same id but different sizes get different numbers.
        return np.array([numbers.setdefault((size, each), len(numbers)) for each in ids], dtype=np.int32)

    return TraceRequest(
        number=number,
        arrival_s=milliseconds / 1e3,
        prompt_len=line.input_length,
        output_len=max(1, line.output_length),
        max_tokens=line.max_tokens or max(1, line.output_length),
        blocks=dense(line.hash_ids),
        output_blocks=dense(line.output_hash_ids),
        block_size=size,
        priority=line.priority,
        tenant=str(line.tenant),
        salt=line.cache_salt,
        deferrable=line.deferrable,
        page_size=line.page_size,
    )
