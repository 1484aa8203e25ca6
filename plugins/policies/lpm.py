"""Longest prefix match first."""

from __future__ import annotations

from typing import Annotated

import msgspec

from llmfw.core import Figures, Order, SchedulePolicy, Waiting

from .ageing import aged


class LPM(SchedulePolicy):
    """Orders by how many leading tokens are cached, most first; equals by arrival.

    What is in the cache is used before it is evicted, so fewer tokens are computed in all. The price: a request
    whose prefix is not cached is overtaken by those that come later and have one, so often as the bound allows.
    """

    class Options(SchedulePolicy.Options, frozen=True):
        """What can be set.

        Attributes:
            max_overtaken: no request is overtaken by more later ones; 0: there is no bound.
        """

        max_overtaken: Annotated[int, msgspec.Meta(ge=0)] = 256

    options: Options

    def order(self, waiting: Waiting, figures: Figures) -> Order:
        wanted = Order.by(-waiting.num_cached, waiting.arrival)
        return aged(wanted, waiting, figures, self.options.max_overtaken)
