"""The bundled policies, written in the plainest way: one request after the other, without numpy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from llmfw.core import Figures, Ordering, Places, Running, SchedulePolicy, Waiting

Requests = Waiting | Running


class PlainPolicy(SchedulePolicy):
    """Orders by `key`, and then by arrival.

    Args:
        bound: how often later requests may overtake a request; 0: without a bound.
    """

    def __init__(self, bound: int = 0) -> None:
        super().__init__(SchedulePolicy.Options())
        self.bound = bound

    def key(self, waiting: Waiting, place: int) -> Any:
        """Return what waiting requests are sorted by."""
        return 0

    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        wanted = sorted(range(len(waiting)), key=lambda i: (self.key(waiting, i), waiting.arrival[i]))
        places = aged_plainly(wanted, waiting, figures.num_places, self.bound) if self.bound else wanted
        return Ordering(np.array(places, dtype=np.intp))

    def retraction_key(self, running: Running, place: int) -> Any:
        """Return what running requests are sorted by before their outputs, prompts and arrivals."""
        return 0

    def retraction_order(self, running: Running, figures: Figures) -> Places:
        def key(i: int) -> Any:
            own = self.retraction_key(running, i)
            return own, running.num_output[i], -running.prompt_len[i], -running.arrival[i]

        return np.array(sorted(range(len(running)), key=key), dtype=np.intp)


def aged_plainly(wanted: Sequence[int], waiting: Waiting, num_places: int, bound: int) -> list[int]:
    """Return the ordering in which the oldest request that is left goes first once it was overtaken `bound` times.

    It counts as overtaken as often as any later request.
    """
    found: list[int] = []
    while len(found) < min(len(wanted), max(1, num_places)):
        left = [i for i in wanted if i not in found]
        oldest = min(left, key=lambda i: waiting.arrival[i])
        before = max(waiting.overtaken[i] for i in wanted if waiting.arrival[i] >= waiting.arrival[oldest])
        now = sum(waiting.arrival[i] > waiting.arrival[oldest] for i in found)
        found.append(oldest if before + now >= bound else left[0])
    return [*found, *(i for i in wanted if i not in found)]


class PlainLPM(PlainPolicy):
    def key(self, waiting: Waiting, place: int) -> Any:
        return -waiting.num_cached[place]


class PlainSJF(PlainPolicy):
    def key(self, waiting: Waiting, place: int) -> Any:
        uncached = waiting.num_tokens[place] - waiting.num_cached[place]
        return uncached + min(waiting.num_to_come[place], 4096)


class PlainFair(PlainPolicy):
    def key(self, waiting: Waiting, place: int) -> Any:
        earlier = [
            i
            for i in range(len(waiting))
            if waiting.tenant[i] == waiting.tenant[place] and waiting.arrival[i] < waiting.arrival[place]
        ]
        return waiting.served[place] + sum(waiting.num_tokens[i] - waiting.num_cached[i] for i in earlier)


class PlainPriority(PlainPolicy):
    def key(self, waiting: Waiting, place: int) -> Any:
        return -waiting.priority[place]

    def retraction_key(self, running: Running, place: int) -> Any:
        return running.priority[place]

    def give_way(self, waiting: Waiting, place: int, running: Running, figures: Figures) -> Places:
        order = self.retraction_order(running, figures)
        lower = [i for i in order if running.priority[i] < waiting.priority[place]]
        return np.array(lower, dtype=np.intp)


class PlainEDF(PlainPolicy):
    """Earliest deadline first, with 30 s for requests that give none.

    Args:
        preempt: whether running requests give way.
        max_wait_s: as in `EDF.Options`.
    """

    def __init__(self, preempt: bool = True, max_wait_s: float = 30.0) -> None:
        super().__init__()
        self.preempt, self.max_wait_s = preempt, max_wait_s

    @property
    def preempts(self) -> bool:
        return self.preempt

    def key(self, waiting: Waiting, place: int) -> Any:
        return self._left(waiting, place)

    def retraction_key(self, running: Running, place: int) -> Any:
        return -self._left(running, place)

    def give_way(self, waiting: Waiting, place: int, running: Running, figures: Figures) -> Places:
        own = self._left(waiting, place)
        order = self.retraction_order(running, figures) if 0 <= own < math.inf else ()
        return np.array([i for i in order if self._left(running, i) > own + 0.1], dtype=np.intp)

    def _left(self, requests: Requests, place: int) -> float:
        """Return the seconds until a request's deadline."""
        waited, timeout = requests.waited[place], requests.time_left[place]
        asked = requests.field("deadline_ms")[place]
        left = timeout if math.isnan(asked) else min(asked / 1000 - waited, timeout)
        return self.max_wait_s - waited if math.isinf(left) and waited >= self.max_wait_s else left
