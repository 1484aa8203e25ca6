"""Makes what keeps sequences' keys and values in pages: pool, prefix cache, page table, and the cache's keeper."""

from __future__ import annotations

import time

from llmfw.core.base.config import EngineConfig
from llmfw.core.schedule.cache.eviction import find_eviction
from llmfw.core.schedule.cache.keeper import CacheKeeper
from llmfw.core.schedule.cache.kv_pool import KVPool
from llmfw.core.schedule.cache.prefix_cache import NoPrefixCache
from llmfw.core.schedule.cache.radix_cache import RadixCache
from llmfw.core.schedule.sequence_pages import SequencePages

from .capacity import Capacity


def build_pages(config: EngineConfig, capacity: Capacity) -> SequencePages:
    """Return pages of which none is used.

    Args:
        capacity: what fits.

    Raises:
        ConfigError: there is no such rule of eviction.
    """
    pool = KVPool(capacity.num_pages, config.page_size)
    cache = (
        NoPrefixCache() if config.disable_radix_cache else RadixCache(pool, find_eviction(config.eviction))
    )
    return SequencePages(pool, cache, capacity.max_running, capacity.max_model_len)


def build_keeper(config: EngineConfig, capacity: Capacity, pages: SequencePages) -> CacheKeeper:
    """Return the keeper of the pages' cache."""
    most_pinned = int(config.max_pinned_fraction * capacity.num_pages) * config.page_size
    return CacheKeeper(pages.cache, pages.pool, most_pinned, time.monotonic, config.eviction)
