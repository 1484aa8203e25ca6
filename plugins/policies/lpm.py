"""Longest prefix match first."""

from __future__ import annotations

from llmfw.core.policy import Figures, Order, SchedulePolicy, Waiting


class LPM(SchedulePolicy):
    """Orders by how many leading tokens are cached, most first; equals by arrival.

    What is in the cache is used before it is evicted, so fewer tokens are computed in all. The price: a request
    whose prefix is not cached waits for as long as others with a cached one keep coming.
    """

    def order(self, waiting: Waiting, figures: Figures) -> Order:
        return Order.by(-waiting.num_cached, waiting.arrival)
