"""A bound on how often later requests overtake a waiting request (aging), for the ordering of any policy.

A request is overtaken when a later request is admitted first. A request that was overtaken `bound` times goes
before all later requests. The bound also holds within one ordering, from which many requests may be admitted
at once.

To be fast, the rule checks only the oldest remaining request. Usually, this request has been overtaken most
often. A retracted request is an exception: later requests may have been overtaken more often. The rule then
uses the largest count of any later request, so the retracted request may go earlier than the bound requires.
This harms no request, because all others are later.

Requests after the first `num_places` of the ordering cannot be admitted in this step, and keep their order.
"""

from __future__ import annotations

import numpy as np

from llmfw.core import Figures, Ordering, Waiting


def aged(wanted: Ordering, waiting: Waiting, figures: Figures, bound: int) -> Ordering:
    """Return the ordering closest to `wanted` that respects the bound.

    Args:
        wanted: ordering of all waiting requests that the policy wants.
        waiting: the waiting requests.
        figures: state of the queue and the pool; `num_places` is the number of requests that may be admitted.
        bound: maximum number of times that a request may be overtaken; 0: no bound.
    """
    num_first = min(len(waiting), max(1, figures.num_places))
    if bound == 0 or len(waiting) == 0 or waiting.overtaken.max() + num_first <= bound:
        return wanted
    by_age = waiting.arrival.argsort()
    overtaken = np.maximum.accumulate(waiting.overtaken[by_age][::-1])[::-1]
    first = _first_places(
        wanted.places[:num_first].tolist(),
        by_age[:num_first].tolist(),
        overtaken[:num_first].tolist(),
        bound,
    )
    is_later = np.ones(len(waiting), dtype=bool)
    is_later[first] = False
    later = wanted.places[is_later[wanted.places]]
    return Ordering(np.concatenate((np.array(first, dtype=np.intp), later)), wanted.num_held)


def _first_places(wanted: list[int], by_age: list[int], overtaken: list[int], bound: int) -> list[int]:
    """Return the first `len(wanted)` requests of the ordering, as indices, with the overtaking bound applied.

    Args:
        wanted: indices of the first requests in the policy's own ordering.
        by_age: indices of the oldest requests, oldest first. Has the length of `wanted`.
        overtaken: for each request of `by_age`, the largest number of times that it or any later request has
            been overtaken.
        bound: maximum number of times that a request may be overtaken.
    """
    first: list[int] = []
    placed = set()
    age = want = 0
    for num_placed in range(len(wanted)):
        while by_age[age] in placed:
            age += 1
        # All older requests are placed already, so all other placed requests overtake this one.
        if overtaken[age] + num_placed - age >= bound:
            place = by_age[age]
        else:
            while wanted[want] in placed:
                want += 1
            place = wanted[want]
        placed.add(place)
        first.append(place)
    return first
