"""Token ids for the requests of a trace. Each token of a block is the block's number, so equal blocks match.

If a trace does not record an output, the output's tokens are unique to the request. So a later prompt that
contains this output would hit a real cache, but misses here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .trace import Blocks, TraceRequest

TokenIds = npt.NDArray[np.int32]

END = 2**31 - 1
"""End token of outputs that are shorter than the client's limit."""

_OUTPUTS = 2**30


def prompt_of(request: TraceRequest) -> TokenIds:
    """Return the tokens of a request's prompt: [prompt_len]."""
    return _repeat(_known_blocks(request), request.block_size, request.prompt_len)


def output_of(request: TraceRequest) -> list[int]:
    """Return the tokens of a request's output. The last one is `END` if the client allowed more tokens."""
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
    """Return the blocks of the prompt, followed by the output's blocks if the trace records them."""
    if not len(request.output_blocks):
        return request.blocks
    return np.concatenate([request.blocks[: request.prompt_len // request.block_size], request.output_blocks])


def _repeat(blocks: Blocks, size: int, length: int) -> TokenIds:
    return np.repeat(blocks[: -(-length // size)], size)[:length]
