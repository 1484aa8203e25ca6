"""Largest priority first."""

from __future__ import annotations

from llmfw.core.policy import Figures, Order, SchedulePolicy, Waiting


class Priority(SchedulePolicy):
    """Orders by the priority that the client gave, largest first; equals by arrival."""

    def order(self, waiting: Waiting, figures: Figures) -> Order:
        return Order.by(-waiting.priority, waiting.arrival)
