"""The bundled eviction rules, wrapped as in an engine."""

from __future__ import annotations

from llmfw.core import EvictionRule
from llmfw.core.schedule.cache.isolated_rule import IsolatedRule
from llmfw.plugins.eviction.lfu import LFU
from llmfw.plugins.eviction.lru import LRU
from llmfw.plugins.eviction.size import Size
from llmfw.plugins.eviction.ttl import TTL

RULES: dict[str, EvictionRule] = {
    "lru": LRU(LRU.Options()),
    "lfu": LFU(LFU.Options()),
    "size": Size(Size.Options()),
    "ttl": TTL(TTL.Options(seconds=5)),
}


def make_rule(name: str) -> IsolatedRule:
    """Return a bundled rule."""
    return IsolatedRule(RULES[name], name)
