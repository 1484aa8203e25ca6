"""Hit rates computed from a trace alone, for a cache that processes one whole prompt after another.

Prompts are not computed concurrently here, and outputs are not cached. A prompt's last token is never a hit,
because it must be computed for its logits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from .trace import TraceRequest


def infinite_hit_rate(trace: Iterable[TraceRequest]) -> float:
    """Return the hit rate (cached prompt tokens / prompt tokens) of a cache that never evicts."""
    return lru_hit_rate(trace, None)


def lru_hit_rate(trace: Iterable[TraceRequest], kv_tokens: int | None) -> float:
    """Return the hit rate (cached prompt tokens / prompt tokens) of a cache with LRU eviction of blocks.

    Args:
        trace: requests in the order of arrival.
        kv_tokens: capacity of the cache in tokens, used in whole blocks; None: unlimited.
    """
    held: OrderedDict[tuple[str, int], int] = OrderedDict()  # (salt, block) → tokens of the block
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
        for block in reversed(blocks):  # evict a prefix after its continuation
            if block not in held:
                held[block] = request.block_size
                num_held += request.block_size
            held.move_to_end(block)
        while kv_tokens is not None and num_held > kv_tokens:
            num_held -= held.popitem(last=False)[1]
    return num_hit / num_asked if num_asked else 0.0
