"""Largest priority first."""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np

from llmfw.core import Figures, Order, Places, Running, SchedulePolicy, Waiting


class Priority(SchedulePolicy):
    """Orders by the priority that the client gave, largest first; equals by arrival.

    Running requests of lower priority give way to waiting ones of higher priority, and are retracted first where the
    pool is full. They are computed again later, as far as their prefix is not cached any more. The price: requests of
    low priority wait as long as others of higher priority come.
    """

    class Options(SchedulePolicy.Options, frozen=True):
        """What can be set.

        Attributes:
            preemption_gap: a running request gives way to one whose priority is larger by at least so much; 0: never.
        """

        preemption_gap: Annotated[int, msgspec.Meta(ge=0)] = 1

    options: Options

    @property
    def preempts(self) -> bool:
        return self.options.preemption_gap > 0

    def order(self, waiting: Waiting, figures: Figures) -> Order:
        return Order.by(-waiting.priority, waiting.arrival)

    def retraction_order(self, running: Running, figures: Figures) -> Places:
        return np.lexsort((-running.arrival, -running.prompt_len, running.num_output, running.priority))

    def give_way(self, waiting: Waiting, place: int, running: Running, figures: Figures) -> Places:
        most = waiting.priority[place] - max(1, self.options.preemption_gap)
        places = self.retraction_order(running, figures)
        return places[running.priority[places] <= most]
