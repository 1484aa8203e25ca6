"""Makes requests of random text with the arrival times, lengths and common prefixes of a trace file."""

from __future__ import annotations

import random
from pathlib import Path

from llmfw.core.base.errors import ConfigError
from llmfw.core.base.request_trace import TraceLine, read_lines

from .errors import BenchError
from .open_loop import MAX_REQUESTS, Planned
from .prompts import Piece, PromptSource


class TraceFile:
    """The requests of a trace file.

    Args:
        block_size: tokens in a block, for lines without `block_size`.

    Raises:
        BenchError: the file cannot be read, is empty, or has an invalid line.
    """

    def __init__(self, path: Path, block_size: int) -> None:
        try:
            self._lines = sorted(read_lines(path, block_size), key=lambda line: line.timestamp)
        except ConfigError as error:
            raise BenchError(f"--trace {error}") from error
        if not self._lines:
            raise BenchError(f"--trace {path}: there is no request in it")
        self.name = path.name
        self._path = path
        self._block_size = block_size
        self._span = (self._lines[-1].timestamp - self._lines[0].timestamp) / 1e3

    def planned(
        self, prompts: PromptSource, seed: str, rate: float | None, seconds: float | None
    ) -> list[Planned]:
        """Return the requests with their times.

        Args:
            rate: mean requests per second, to which the trace's times are stretched; None: as is.
            seconds: length of the run; later requests of the trace are left out; None: the whole trace.
        """
        speed = 1.0 if rate is None else self._speed(rate)
        first = self._lines[0].timestamp
        times = [(line.timestamp - first) / 1e3 / speed for line in self._lines]
        kept = len(times) if seconds is None else sum(due <= seconds for due in times)
        if kept > MAX_REQUESTS:
            raise BenchError(
                f"--trace {self._path}: {kept:,} requests; at most {MAX_REQUESTS:,} fit into memory: give --duration"
            )
        blocks = _Blocks(prompts, seed, self._block_size)
        lines = zip(times[:kept], self._lines[:kept], strict=True)
        return [Planned(due, [blocks.pieces(line)], max(1, line.output_length)) for due, line in lines]

    def _speed(self, rate: float) -> float:
        if not self._span:
            raise BenchError(f"--trace {self._path}: all requests come at once; leave out --rate")
        return rate * self._span / (len(self._lines) - 1)


class _Blocks:
    """Random pieces of prompts, one for each block of a trace. Equal blocks have equal pieces."""

    def __init__(self, prompts: PromptSource, seed: str, block_size: int) -> None:
        self._prompts = prompts
        self._seed = seed
        self._block_size = block_size
        self._made: dict[tuple[int, int], Piece] = {}

    def pieces(self, line: TraceLine) -> list[Piece]:
        """Return the pieces of a request's prompt."""
        size = line.block_size or self._block_size
        rest = line.input_length
        pieces: list[Piece] = []
        for block in line.hash_ids:
            pieces.append(self._piece(block, min(size, rest)))
            rest -= size
        return pieces

    def _piece(self, block: int, tokens: int) -> Piece:
        if (block, tokens) not in self._made:
            rng = random.Random(f"{self._seed}/{block}")
            self._made[block, tokens] = self._prompts.draw(rng, tokens)
        return self._made[block, tokens]
