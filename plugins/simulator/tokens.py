"""Token ids for requests of a trace: a block's tokens are its number, so equal blocks are equal tokens.

Where a trace does not know an output, its tokens are those of no other request: a later prompt that holds the answer
finds it in the real cache, but not here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .trace import Blocks, TraceRequest

TokenIds = npt.NDArray[np.int32]

END = 2**31 - 1
"""Ends an output that is shorter than the client allowed."""

_OUTPUTS = 2**30


def prompt_of(request: TraceRequest) -> TokenIds:
    """Return the tokens of a prompt: [prompt_len]."""
    return _repeat(_known_blocks(request), request.block_size, request.prompt_len)


def output_of(request: TraceRequest) -> list[int]:
    """Return the tokens of an output, of which the last one is the end if the client allowed more."""
    if len(request.output_blocks):
        tokens = _repeat(_known_blocks(request), request.block_size, request.length)[
            request.prompt_len :
        ].tolist()
    else:
        tokens = [_OUTPUTS + request.number] * request.output_len
    if request.max_tokens > request.output_len:
        tokens[-1] = END
    return tokens


def _known_blocks(request: TraceRequest) -> Blocks:
    """Return the blocks of the prompt, and of the output if it is known."""
    if not len(request.output_blocks):
        return request.blocks
    return np.concatenate([request.blocks[: request.prompt_len // request.block_size], request.output_blocks])


def _repeat(blocks: Blocks, size: int, length: int) -> TokenIds:
    return np.repeat(blocks[: -(-length // size)], size)[:length]
