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
"""Upper bound of the cache's clock."""


def lru(leaf: CacheNode) -> float:
    """Evict the least recently used prefix first. Suits conversations, whose next turn comes soon or never."""
    return leaf.last_use


def lfu(leaf: CacheNode) -> float:
    """Evict the least often found prefix first; of equals, the least recently used.

    Suits a fixed set of documents or few-shot prompts. A prefix that was popular once stays forever.
    """
    return leaf.hits * TICKS + leaf.last_use


def size(leaf: CacheNode) -> float:
    """Evict large prefixes that are rarely found first: GreedyDual-Size-Frequency (Cherkasova, 1998), with equal cost
    per miss.

    The value of a leaf is its number of uses per page, so that as many requests as possible find something, even if the
    found tokens are fewer. The floor is added to this: the value of the last evicted leaf at the time of the leaf's
    last use. So a prefix that was popular once loses value, relative to the ones in use now, and is evicted.
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
