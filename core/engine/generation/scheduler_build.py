"""Makes the scheduler of what the settings say and of what fits."""

from __future__ import annotations

from llmfw.core.base.config import EngineConfig
from llmfw.core.interfaces.policy import SchedulePolicy
from llmfw.core.schedule.admission import NewTokenRatio
from llmfw.core.schedule.scheduler import Scheduler
from llmfw.core.schedule.sequence_pages import SequencePages
from llmfw.core.schedule.speculation import Speculation
from llmfw.core.schedule.trace import DecisionTrace

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
