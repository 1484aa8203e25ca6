"""The objects of an engine that plan steps."""

from __future__ import annotations

from dataclasses import dataclass

from llmfw.core.schedule.cache.keeper import CacheKeeper
from llmfw.core.schedule.scheduler import Scheduler
from llmfw.core.schedule.sequence_pages import SequencePages
from llmfw.core.schedule.speculation import Speculation

from .administration import Administration


@dataclass(frozen=True, slots=True)
class Planning:
    """Objects that plan steps. They hold no tensors.

    Attributes:
        scheduler: scheduler of the sequences.
        pages: pages of the sequences.
        speculation: source of drafts; None: no drafts.
        keeper: keeper of the prefix cache.
        administration: carries out administrators' commands.
    """

    scheduler: Scheduler
    pages: SequencePages
    speculation: Speculation | None
    keeper: CacheKeeper
    administration: Administration
