"""Token ids for requests of a trace: a block's tokens are its number, so equal blocks are equal tokens.

Where a trace does not know an output, its tokens are those of no other request: a later prompt that holds the answer
finds it in the real cache, but not here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .trace import TraceRequest

TokenIds = npt.NDArray[np.int32]

END = 2**31 - 1
"""Ends an output that is shorter than the client allowed."""

_OUTPUTS = 2**30


def tokens_of(request: TraceRequest) -> TokenIds:
    """Return the tokens of a request, prompt and output: [length]."""
    size, prompt_len = request.block_size, request.prompt_len
    if len(request.output_blocks):
        blocks = np.concatenate([request.blocks[: prompt_len // size], request.output_blocks])
        tokens = np.repeat(blocks, size)[: request.length]
    else:
        tokens = np.empty(request.length, dtype=np.int32)
        tokens[:prompt_len] = np.repeat(request.blocks, size)[:prompt_len]
        tokens[prompt_len:] = _OUTPUTS + request.number
    if request.max_tokens > request.output_len:
        tokens[-1] = END
    return tokens
