"""The objects of an engine that plan steps, and their construction. They hold no tensors."""

from __future__ import annotations

import time
from dataclasses import dataclass

from llmfw.core.base.config import EngineConfig
from llmfw.core.schedule.cache.cache_journal import CacheJournal
from llmfw.core.schedule.cache.isolated_rule import IsolatedRule
from llmfw.core.schedule.cache.keeper import CacheKeeper
from llmfw.core.schedule.cache.kv_pool import KVPool
from llmfw.core.schedule.cache.prefix_cache import NoPrefixCache, PrefixCache
from llmfw.core.schedule.cache.radix_cache import RadixCache
from llmfw.core.schedule.cache.snapshot_cache import SnapshotCache
from llmfw.core.schedule.cache.snapshot_slots import SnapshotSlots
from llmfw.core.schedule.decision_log import DecisionLog
from llmfw.core.schedule.image_cache import ImageCache
from llmfw.core.schedule.new_token_ratio import NewTokenRatio
from llmfw.core.schedule.scheduler import Scheduler
from llmfw.core.schedule.sequence_pages import SequencePages
from llmfw.core.schedule.speculation import Speculation, build_speculation
from llmfw.core.schedule.trace import DecisionTrace, together

from .adapters import EngineAdapters
from .administration import Administration
from .capacity import Capacity
from .foundation import Foundation
from .named_components import NamedComponents


@dataclass(frozen=True, slots=True)
class Planning:
    """Objects that plan steps.

    Attributes:
        scheduler: scheduler of the sequences.
        pages: pages of the sequences.
        speculation: source of drafts; None: no drafts.
        keeper: keeper of the prefix cache.
        administration: carries out administrators' commands.
        journal: changes of the prefix cache; None if they are not recorded.
    """

    scheduler: Scheduler
    pages: SequencePages
    speculation: Speculation | None
    keeper: CacheKeeper
    administration: Administration
    journal: CacheJournal | None = None


def build_planning(
    foundation: Foundation,
    components: NamedComponents,
    adapters: EngineAdapters,
    trace: DecisionTrace | None,
) -> Planning:
    """Build the objects that plan steps.

    Args:
        adapters: the engine's adapters.
        trace: receives the scheduler's decisions; None: they are traced only if the settings say so.
    """
    config, capacity, model = foundation.config, foundation.capacity, foundation.model
    decisions = DecisionLog(config.trace_requests) if config.trace_requests else None
    images = None
    if model.images is not None:
        images = ImageCache(model.images.cache_bytes, model.images.row_bytes, capacity.prefill_budget)
    pages = _pages(config, capacity, components.rule, images, keeps_states=bool(model.states))
    speculation = build_speculation(
        config, foundation.registry, components.drafter, model.vocab_size, foundation.device.type
    )
    scheduler = Scheduler(
        pages,
        components.policies.policy,
        NewTokenRatio(config.schedule_conservativeness),
        max_running=capacity.max_running,
        prefill_budget=capacity.prefill_budget,
        chunked=capacity.chunked,
        share=config.batch_share,
        trace=together(trace, decisions),
        speculation=speculation,
        slots=adapters.assignment,
    )
    keeper = _keeper(config, capacity, pages)
    administration = Administration(scheduler, components.policies, keeper, decisions, adapters)
    return Planning(scheduler, pages, speculation, keeper, administration, _journal(config, pages))


def _pages(
    config: EngineConfig,
    capacity: Capacity,
    rule: IsolatedRule,
    images: ImageCache | None,
    *,
    keeps_states: bool,
) -> SequencePages:
    pool = KVPool(capacity.num_pages, config.page_size)
    cache: PrefixCache
    if config.disable_radix_cache or (keeps_states and not capacity.num_snapshots):
        cache = NoPrefixCache()
    elif keeps_states:
        slots = SnapshotSlots(capacity.max_running, capacity.num_snapshots)
        cache = SnapshotCache(pool, slots, rule)
    else:
        cache = RadixCache(pool, rule)
    return SequencePages(pool, cache, capacity.max_running, capacity.max_model_len, images)


def _journal(config: EngineConfig, pages: SequencePages) -> CacheJournal | None:
    """Start a journal of the prefix cache if a router needs it."""
    if not config.place.is_replica or not isinstance(pages.cache, RadixCache):
        return None
    return pages.cache.start_journal()


def _keeper(config: EngineConfig, capacity: Capacity, pages: SequencePages) -> CacheKeeper:
    most_pinned = int(config.max_pinned_fraction * capacity.num_pages) * config.page_size
    return CacheKeeper(pages.cache, pages.pool, most_pinned, time.monotonic, config.eviction)
