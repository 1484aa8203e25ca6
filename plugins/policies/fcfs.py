"""The policy `fcfs`: first come, first served."""

from __future__ import annotations

from llmfw.core import Figures, Ordering, SchedulePolicy, Waiting


class FCFS(SchedulePolicy):
    """Orders by arrival. A retracted request keeps its arrival time, so it goes before later requests."""

    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        return Ordering.by(waiting.arrival)
