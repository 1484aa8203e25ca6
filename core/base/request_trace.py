"""The file format of traces of requests: arrival times, lengths, and the ids of the prompts' blocks.

This is Mooncake's public format, with one JSON object per line. `llmfw serve --record-requests` writes the
same fields and further, optional ones. A trace has no tokens, only ids of blocks: equal ids mean equal
prefixes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from .errors import ConfigError

MOONCAKE_BLOCK = 512
_Count = Annotated[int, msgspec.Meta(ge=1)]
_Milliseconds = Annotated[float, msgspec.Meta(ge=-1e18, le=1e18)]
"""A time whose distance from any other one is a finite number."""
_Priority = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
"""A priority that schedulers can keep in 64 bits, with either sign."""


class TraceLine(msgspec.Struct, frozen=True):
    """One line of a trace file. Unknown fields are ignored.

    Attributes:
        timestamp: arrival, in milliseconds since any point in time.
        input_length, output_length: number of tokens.
        hash_ids: ids of the prompt's blocks; the last block may be partial.
        block_size: tokens in a block; None: the `block_size` of `read_lines`.
        output_hash_ids: ids of the blocks of prompt and output together, starting at the first block that the
            prompt does not fill.
        max_tokens: limit that the client set; None: the length of the output.
        priority, tenant, cache_salt, deferrable: as in `llmfw.core.Request`.
        page_size: tokens in a page of the server that recorded the line.
    """

    timestamp: _Milliseconds
    input_length: _Count
    output_length: Annotated[int, msgspec.Meta(ge=0)]
    hash_ids: list[int]
    block_size: _Count | None = None
    output_hash_ids: list[int] = []
    max_tokens: _Count | None = None
    priority: _Priority = 0
    tenant: int | str = 0
    cache_salt: str = ""
    deferrable: bool = False
    page_size: _Count | None = None


def read_lines(path: Path, block_size: int) -> Iterator[TraceLine]:
    """Yield the lines of a trace file in their order, without blank ones.

    Args:
        block_size: tokens in a block, for lines without `block_size`.

    Raises:
        ConfigError: the file cannot be read or has an invalid line; the message names line and field.
    """
    decoder = msgspec.json.Decoder(TraceLine)
    try:
        if path.is_char_device():
            raise ConfigError(f"{path} is a device, which has no end; give a file")
        with path.open("rb") as file:
            for number, text in enumerate(file, 1):
                if text.strip():
                    yield _line(decoder, text, f"{path}:{number}", block_size)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error


def _line(decoder: msgspec.json.Decoder[TraceLine], text: bytes, where: str, block_size: int) -> TraceLine:
    try:
        line = decoder.decode(text)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where} is not JSON: {error}") from error
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
        raise ConfigError(
            f"{where}: max_tokens is {line.max_tokens}, less than output_length {line.output_length}"
        )
    return line


def _check_blocks(where: str, field: str, ids: list[int], expected: int, of: str, size: int) -> None:
    if len(ids) != expected:
        raise ConfigError(
            f"{where}: {field} has {len(ids)} blocks; {of} has {expected} of {size} tokens (see --block-size)"
        )
