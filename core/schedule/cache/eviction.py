"""Eviction rules: plain functions from a leaf to a number. The cache evicts the leaf with the smallest number first.

The number of a leaf must never decrease while the leaf is in the cache: the cache computes it when it lists the leaf, and
again when the leaf's turn comes. A rule reads the attributes of `CacheNode`. The cache never asks about an inner node;
the node becomes a leaf when its last child is evicted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from llmfw.core.base.errors import ConfigError

if TYPE_CHECKING:
    from .prefix_cache import CacheNode

Eviction = Callable[["CacheNode"], float]

TICKS = 2**48
"""More than the cache's clock ever counts."""


def lru(leaf: CacheNode) -> float:
    """Keep what was used last. Right for conversations, whose next turn comes soon or never."""
    return leaf.last_use


def lfu(leaf: CacheNode) -> float:
    """Keep what was found most often; of equals, what was used last.

    Right for a fixed set of documents or few-shot prompts. What was popular once stays for ever, however long ago.
    """
    return leaf.hits * TICKS + leaf.last_use


def size(leaf: CacheNode) -> float:
    """Keep what is small and found often: GreedyDual-Size-Frequency (Cherkasova, 1998), every miss costing the same.

    A leaf is worth its uses for each page that it takes, so that as many requests as possible find something; of
    tokens found there may be fewer. To this is added the worth of what was evicted last when the leaf was last used
    (the floor): what was popular once sinks, relative to what is used now, and goes.
    """
    return leaf.floor + (1 + leaf.hits) / len(leaf.pages)


EVICTIONS: dict[str, Eviction] = {"lru": lru, "lfu": lfu, "size": size}


def find_eviction(name: str) -> Eviction:
    """Return the eviction rule with this name.

    Raises:
        ConfigError: no rule has this name; the message lists the known rules.
    """
    try:
        return EVICTIONS[name]
    except KeyError:
        known = ", ".join(EVICTIONS)
        raise ConfigError(f"no eviction rule is called {name!r}; there are {known}") from None
