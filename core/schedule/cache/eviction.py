"""Eviction rules: functions that give each leaf of the radix tree a number.

The cache evicts the leaf with the smallest number first. It keeps the leaves in a heap, and computes a leaf's
number when the leaf enters the heap and again when the leaf reaches the top. So a leaf's number must never
decrease in between. A rule reads the attributes of `CacheNode`. The cache calls a rule only for leaves; an
inner node becomes a leaf when its last child is evicted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from llmfw.core.base.errors import ConfigError

if TYPE_CHECKING:
    from .prefix_cache import CacheNode

Eviction = Callable[["CacheNode"], float]

TICKS = 2**48
"""Factor that exceeds every value of the cache's clock (`last_use`), so `last_use` only breaks ties."""


def lru(leaf: CacheNode) -> float:
    """Rank leaves by last use, least recently used first.

    Suits conversations, whose next turn comes soon or never.
    """
    return leaf.last_use


def lfu(leaf: CacheNode) -> float:
    """Rank leaves by their number of hits: least frequently used first. Ties: least recently used first.

    Suits a fixed set of documents or few-shot prompts. A leaf that was popular once stays forever, even if
    unused since.
    """
    return leaf.hits * TICKS + leaf.last_use


def size(leaf: CacheNode) -> float:
    """Rank leaves by uses per page: GreedyDual-Size-Frequency (Cherkasova, 1998), with equal cost per miss.

    Small leaves that are used often stay. This favors the number of requests with a cache hit over the
    number of tokens hit. The returned number is the leaf's uses per page plus the leaf's floor: the largest
    number of all leaves that were evicted before the leaf's last use. So leaves that are no longer used fall
    behind newer ones and are evicted.
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
