"""A bound on how often later requests overtake a waiting request, for any order that a policy wants.

A request is overtaken when a later request is admitted before it. Once this has happened `bound` times, the request goes
before all later ones. The bound also holds within one order, of which many requests may be admitted.

The rule checks only the oldest remaining request, so that it costs nothing if it does not apply. Later requests have not
been overtaken more often, unless the oldest was retracted. Then the oldest counts as overtaken as often as they are, so it
may go earlier than the bound requires. It is older than all of them, so it overtakes none.

Requests behind the first `num_places` of the order are not admitted in this step, and keep their order.
"""

from __future__ import annotations

import numpy as np

from llmfw.core import Figures, Ordering, Waiting


def aged(wanted: Ordering, waiting: Waiting, figures: Figures, bound: int) -> Ordering:
    """Return the order that is nearest to the wanted one within the bound.

    Args:
        wanted: all places, in the order that the policy wants.
        waiting: the requests.
        figures: figures of the queue and the pool; `num_places` is the number of requests that may be admitted.
        bound: most times that a request is overtaken; 0: no bound.
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
    """Return the first places of an order, as many as `wanted` has.

    Args:
        wanted: the first places in the policy's order.
        by_age: the same number of oldest requests, oldest first.
        overtaken: how often each of these, or a later one, was overtaken before.
        bound: as in `aged`.
    """
    first: list[int] = []
    placed = set()
    age = want = 0
    for num_placed in range(len(wanted)):
        while by_age[age] in placed:
            age += 1
        # All older requests are placed, so all other placed requests have overtaken this one.
        if overtaken[age] + num_placed - age >= bound:
            place = by_age[age]
        else:
            while wanted[want] in placed:
                want += 1
            place = wanted[want]
        placed.add(place)
        first.append(place)
    return first
