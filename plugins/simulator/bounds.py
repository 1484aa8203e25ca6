"""Hit rates that follow from a trace alone: for caches that see its whole prompts one after the other.

No two prompts are computed at the same time here, and outputs are not cached. A prompt's last token never comes from the
cache, because its logits are needed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from .trace import TraceRequest


def infinite_hit_rate(trace: Iterable[TraceRequest]) -> float:
    """Return cached prompt tokens / prompt tokens of a cache that forgets nothing."""
    return lru_hit_rate(trace, None)


def lru_hit_rate(trace: Iterable[TraceRequest], kv_tokens: int | None) -> float:
    """Return cached prompt tokens / prompt tokens of a cache that forgets the blocks used longest ago.

    Args:
        trace: by arrival.
        kv_tokens: tokens that the cache holds, counted in whole blocks; None: any number.
    """
    held: OrderedDict[tuple[str, int], int] = OrderedDict()  # a block's tokens
    num_held = num_hit = num_asked = 0
    for request in trace:
        blocks = [(request.salt, block) for block in request.blocks.tolist()]
        num_cached = 0
        for block in blocks:
            if block not in held:
                break
            num_cached += 1
        num_hit += min(num_cached * request.block_size, request.prompt_len - 1)
        num_asked += request.prompt_len
        for block in reversed(blocks):  # a prefix is used after what goes on from it, so it goes later
            if block not in held:
                held[block] = request.block_size
                num_held += request.block_size
            held.move_to_end(block)
        while kv_tokens is not None and num_held > kv_tokens:
            num_held -= held.popitem(last=False)[1]
    return num_hit / num_asked if num_asked else 0.0
