"""Returns the prefixes of a request's prompt, with hashes as in the engines' reports of cached prefixes."""

from __future__ import annotations

from array import array
from collections.abc import Mapping

from llmfw.core.base.adapter_salt import adapter_salt
from llmfw.core.base.request import EmbedRequest, Request

from ..prompt_prefixes import NO_PREFIXES, PromptPrefixes


def prompt_prefixes(
    request: Request | EmbedRequest, block: int, digests: Mapping[str, str]
) -> PromptPrefixes:
    """Return the prefixes of a request's prompt that end with a block.

    There are none for requests that do not use the prefix cache, and for prompts that the engine will refuse.

    Args:
        block: number of tokens in a block; 0: the engines cache no prefixes.
        digests: hash of the files of each adapter, by its name.
    """
    if isinstance(request, EmbedRequest) or request.prompt_logprobs is not None:
        return NO_PREFIXES
    if block == 0 or len(request.prompt) < block:
        return NO_PREFIXES
    salt = adapter_salt(request.adapter, digests.get(request.adapter, ""), request.cache_salt)
    if not request.media:
        return PromptPrefixes(request.prompt, salt, block)
    import numpy as np  # a server with one engine does not need it

    from llmfw.core.base.media import cache_ids

    try:
        tokens = np.frombuffer(array("i", request.prompt), np.int32)
    except (OverflowError, TypeError):  # no token ids; a plugin's route may send anything
        return NO_PREFIXES
    return PromptPrefixes(cache_ids(tokens, request.media), salt, block)
