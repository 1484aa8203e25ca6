"""Largest priority first."""

from __future__ import annotations

from collections.abc import Sequence

from llmfw.core.policy import PrefixLookup, SchedulePolicy, Waiting


class Priority(SchedulePolicy):
    """Orders by the priority that the client gave, largest first; equals by arrival."""

    def order(self, waiting: Sequence[Waiting], cache: PrefixLookup) -> Sequence[Waiting]:
        return sorted(waiting, key=lambda request: (-request.priority, request.arrival))
