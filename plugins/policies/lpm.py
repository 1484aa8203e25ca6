"""The policy `lpm`: longest prefix match first."""

from __future__ import annotations

from typing import Annotated

import msgspec

from llmfw.core import Figures, Ordering, SchedulePolicy, Waiting

from .aging import aged


class LPM(SchedulePolicy):
    """Orders by the number of cached leading tokens, most first; breaks ties by arrival.

    Cached prefixes are used before they are evicted, so fewer tokens are computed in total. The drawback:
    later requests with a cached prefix overtake a request without one, up to `max_overtaken` times.
    """

    class Options(SchedulePolicy.Options, frozen=True):
        """Options of the policy.

        Attributes:
            max_overtaken: maximum number of later requests that may overtake a request; 0: no bound.
        """

        max_overtaken: Annotated[int, msgspec.Meta(ge=0)] = 256

    options: Options

    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        wanted = Ordering.by(-waiting.num_cached, waiting.arrival)
        return aged(wanted, waiting, figures, self.options.max_overtaken)
