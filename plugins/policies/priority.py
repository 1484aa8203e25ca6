"""The policy `priority`: largest priority first."""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np

from llmfw.core import Figures, Ordering, Places, Running, SchedulePolicy, Waiting


class Priority(SchedulePolicy):
    """Orders by the client's priority, largest first; breaks ties by arrival.

    Running requests of lower priority give way to waiting requests of higher priority (preemption), and are
    retracted first if the pool is full. These requests run again later, and recompute only the tokens that
    are no longer cached. The drawback: requests of low priority wait for as long as requests of higher
    priority keep arriving.
    """

    class Options(SchedulePolicy.Options, frozen=True):
        """Options of the policy.

        Attributes:
            preemption_gap: least difference in priority at which a running request gives way; 0: never.
        """

        preemption_gap: Annotated[int, msgspec.Meta(ge=0)] = 1

    options: Options

    @property
    def preempts(self) -> bool:
        return self.options.preemption_gap > 0

    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        return Ordering.by(-waiting.priority, waiting.arrival)

    def retraction_order(self, running: Running, figures: Figures) -> Places:
        return np.lexsort((-running.arrival, -running.prompt_len, running.num_output, running.priority))

    def give_way(self, waiting: Waiting, place: int, running: Running, figures: Figures) -> Places:
        most = waiting.priority[place] - max(1, self.options.preemption_gap)
        places = self.retraction_order(running, figures)
        return places[running.priority[places] <= most]
