"""A bound on how often a waiting request is overtaken by later ones, whatever order a policy would like.

A request is overtaken when one that came later is admitted before it. Once that has happened `bound` times, it goes
before all that came later. The bound holds within one order, too, of which many may be admitted.

The rule looks at the oldest request that is left only, so that it costs nothing where it does not apply. Later ones
have not been overtaken more often, unless the oldest was retracted: then it counts for as much as they do, which is to
say that it may go earlier than the bound asks for. It is older than all of them, so it overtakes none.

What comes behind the first `num_places` of the order is not admitted in this step, and is left as it was.
"""

from __future__ import annotations

import numpy as np

from llmfw.core import Figures, Order, Waiting


def aged(wanted: Order, waiting: Waiting, figures: Figures, bound: int) -> Order:
    """Return an order as near to the wanted one as the bound allows.

    Args:
        wanted: all places.
        waiting: the requests.
        figures: of them, `num_places` says how many may be admitted.
        bound: no request is overtaken more often; 0: as often as the order wants.
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
    return Order(np.concatenate((np.array(first, dtype=np.intp), later)), wanted.num_held)


def _first_places(wanted: list[int], by_age: list[int], overtaken: list[int], bound: int) -> list[int]:
    """Return the first places of an order, as many as are wanted.

    Args:
        wanted: as the policy would have them.
        by_age: the oldest, oldest first, as many.
        overtaken: how often each of these, or one that came after it, was overtaken before.
        bound: as of `aged`.
    """
    first: list[int] = []
    placed = set()
    age = want = 0
    for num_placed in range(len(wanted)):
        while by_age[age] in placed:
            age += 1
        # All that are older than this one are placed; so the others that are have overtaken it.
        if overtaken[age] + num_placed - age >= bound:
            place = by_age[age]
        else:
            while wanted[want] in placed:
                want += 1
            place = wanted[want]
        placed.add(place)
        first.append(place)
    return first
