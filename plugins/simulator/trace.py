"""The requests of a trace, in the order of their arrival. A request without output gets one output token.

For the format of the file, see `llmfw.core.base.request_trace`, for its tokens, `tokens`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from llmfw.core.base.errors import ConfigError
from llmfw.core.base.request_trace import MOONCAKE_BLOCK, TraceLine, read_lines

from .errors import SimulatorError

Blocks = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request of a trace.

    Attributes:
        number: index in the order of arrival.
        arrival_s: seconds between the first request's arrival and this request's arrival.
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
    lines.sort(key=lambda line: line.timestamp)  # recordings have the order in which requests ended
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


def _lines(path: Path, block_size: int) -> Iterator[TraceLine]:
    try:
        yield from read_lines(path, block_size)
    except ConfigError as error:
        raise SimulatorError(str(error)) from error


def _request(
    number: int, line: TraceLine, milliseconds: float, block_size: int, numbers: dict[tuple[int, int], int]
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
