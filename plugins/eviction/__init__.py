"""The bundled eviction rules: `lru` (default), `lfu`, `size` and `ttl`."""

from __future__ import annotations

from llmfw.core import Register, hookimpl


@hookimpl
def register_eviction_rules(register: Register) -> None:
    register("lru", "llmfw.plugins.eviction.lru:LRU", summary="least recently used prefixes first")
    register("lfu", "llmfw.plugins.eviction.lfu:LFU", summary="least often used prefixes first")
    register("size", "llmfw.plugins.eviction.size:Size", summary="fewest uses per page first")
    register(
        "ttl",
        "llmfw.plugins.eviction.ttl:TTL",
        summary="lru, and prefixes that were not used for a time leave even if there is room",
    )
