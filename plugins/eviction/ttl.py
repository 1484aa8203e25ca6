"""The eviction rule `ttl`: prefixes leave after a time, even if there is room."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from llmfw.core import CacheLeaf, EvictionRule


class TTL(EvictionRule):
    """Removes prefixes after a time. If room is needed before, the least recently used ones are evicted first.

    Suits servers that must not keep clients' data longer than needed.
    """

    class Options(EvictionRule.Options, frozen=True):
        """
        Attributes:
            seconds: time after which a prefix leaves the cache.
            since: start of the time: the last use, or when the prefix was cached.
        """

        seconds: Annotated[float, msgspec.Meta(gt=0)] = 3600.0
        since: Literal["used", "created"] = "used"

    options: Options

    def rank(self, leaf: CacheLeaf) -> float:
        return leaf.last_use

    def expires_at(self, leaf: CacheLeaf) -> float:
        start = leaf.used_at if self.options.since == "used" else leaf.created_at
        return start + self.options.seconds
