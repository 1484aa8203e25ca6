"""Computes the hashes of a request's prompt, as in the engines' reports of cached prefixes."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

from llmfw.core.base.adapter_salt import adapter_salt
from llmfw.core.base.request import EmbedRequest, Request


def prompt_hashes(request: Request | EmbedRequest, block: int, digests: Mapping[str, str]) -> Sequence[int]:
    """Return the hash of each prefix of a request's prompt that ends with a block.

    Empty for requests that do not use the prefix cache, and for prompts that the engine will refuse.

    Args:
        block: number of tokens in a block; 0: the engines cache no prefixes.
        digests: hash of the files of each adapter, by its name.
    """
    if isinstance(request, EmbedRequest) or request.prompt_logprobs is not None:
        return ()
    if block == 0 or len(request.prompt) < block:
        return ()
    import numpy as np  # a server with one engine does not need it

    from llmfw.core.base.media import cache_ids
    from llmfw.core.schedule.cache.prefix_hash import block_hashes

    try:
        tokens = np.frombuffer(array("i", request.prompt), np.int32)
    except (OverflowError, TypeError):  # no token ids; a plugin's route may send anything
        return ()
    if request.media:
        tokens = cache_ids(tokens, request.media)
    salt = adapter_salt(request.adapter, digests.get(request.adapter, ""), request.cache_salt)
    return block_hashes(tokens, salt, block)
