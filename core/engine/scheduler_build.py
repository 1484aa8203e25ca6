"""Makes the scheduler of what the settings say and of what fits."""

from __future__ import annotations

from ..config import EngineConfig
from ..policy import SchedulePolicy
from ..scheduling.admission import NewTokenRatio
from ..scheduling.scheduler import Scheduler
from ..scheduling.sequence_pages import SequencePages
from ..scheduling.trace import DecisionTrace
from ..speculation.speculation import Speculation
from .capacity import Capacity


def build_scheduler(
    config: EngineConfig,
    capacity: Capacity,
    pages: SequencePages,
    policy: SchedulePolicy,
    trace: DecisionTrace | None,
    speculation: Speculation | None,
) -> Scheduler:
    """Return a scheduler.

    Args:
        capacity: what fits.
        pages: where sequences get theirs.
        policy: orders those that wait.
        trace: is told of each decision.
        speculation: adds drafts to steps.
    """
    return Scheduler(
        pages,
        policy,
        NewTokenRatio(config.schedule_conservativeness),
        max_running=capacity.max_running,
        prefill_budget=capacity.prefill_budget,
        chunked=capacity.chunked,
        share=config.batch_share,
        trace=trace,
        speculation=speculation,
    )
