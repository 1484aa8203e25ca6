"""The policy `edf`: earliest deadline first."""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np

from llmfw.core import Figures, Ordering, Places, Running, SchedulePolicy, Waiting
from llmfw.core.interfaces.policy import Floats


class EDF(SchedulePolicy):
    """Orders by deadline, earliest first; breaks ties by arrival.

    The request fields `deadline_ms` and `timeout` set the deadline; the earlier one counts. A request that
    misses its deadline runs to its end: only `timeout` ends requests.

    A request without a deadline comes after all others until it has waited for `max_wait_s`. From then on,
    its deadline is the time `max_wait_s` after its arrival, so requests with later deadlines no longer
    overtake it.

    If a request with a deadline cannot be admitted for lack of rows or pages, running requests with later
    deadlines give way (preemption), the latest deadline first. The preempted requests run again later, and
    recompute only the tokens that are no longer cached. A request whose deadline has passed preempts no
    other.
    """

    class Options(SchedulePolicy.Options, frozen=True):
        """Options of the policy.

        Attributes:
            max_wait_s: seconds after its arrival at which a request without a deadline has one.
            preemption_gap_s: a running request gives way if its deadline is later by more than this, in
                seconds.
            preempt: whether running requests give way.
        """

        max_wait_s: Annotated[float, msgspec.Meta(gt=0, le=1e6)] = 30.0
        preemption_gap_s: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 0.1
        preempt: bool = True

    options: Options

    @property
    def preempts(self) -> bool:
        return self.options.preempt

    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        return Ordering.by(self._slack(waiting), waiting.arrival)

    def retraction_order(self, running: Running, figures: Figures) -> Places:
        keys = (-running.arrival, -running.prompt_len, running.num_output, -self._slack(running))
        places: Places = np.lexsort(keys)
        return places

    def give_way(self, waiting: Waiting, place: int, running: Running, figures: Figures) -> Places:
        own = self._slack(waiting)[place]
        if not 0 <= own < np.inf:  # too late to help, or no deadline
            return np.empty(0, dtype=np.intp)
        places = self.retraction_order(running, figures)
        return places[self._slack(running)[places] > own + self.options.preemption_gap_s]

    def _slack(self, requests: Waiting | Running) -> Floats:
        """Return the seconds until each request's deadline: negative once it has passed, infinity if there is
        none."""
        asked = requests.field("deadline_ms") / 1000 - requests.waited
        slack = np.fmin(asked, requests.time_left)
        overdue = self.options.max_wait_s - requests.waited
        found: Floats = np.where(np.isinf(slack) & (overdue <= 0), overdue, slack)
        return found
