"""Token ids for requests of a trace: each token of a block is the block's number, so equal blocks have equal tokens.

If a trace does not record an output, its tokens are unique to the request. A later prompt that contains the answer
would find it in the real cache, but does not find it here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .trace import Blocks, TraceRequest

TokenIds = npt.NDArray[np.int32]

END = 2**31 - 1
"""The token that ends an output which is shorter than the client allowed."""

_OUTPUTS = 2**30


def prompt_of(request: TraceRequest) -> TokenIds:
    """Return the tokens of a prompt: [prompt_len]."""
    return _repeat(_known_blocks(request), request.block_size, request.prompt_len)


def output_of(request: TraceRequest) -> list[int]:
    """Return the tokens of an output. The last one is `END` if the client allowed more tokens."""
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
