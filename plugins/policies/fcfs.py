"""First come, first served."""

from __future__ import annotations

from collections.abc import Sequence

from llmfw.core.policy import PrefixLookup, SchedulePolicy, Waiting


class FCFS(SchedulePolicy):
    """Orders by arrival. A retracted request is older than those that came after it, so it goes first."""

    def order(self, waiting: Sequence[Waiting], cache: PrefixLookup) -> Sequence[Waiting]:
        return sorted(waiting, key=lambda request: request.arrival)
