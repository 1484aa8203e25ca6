"""Lets tenants take turns in admission, whatever the policy. Within a tenant the policy's order stays.

Only tenants that are API keys take turns. Users that a client names do not, because a client would get many turns by
naming many users. With requests of one key, the order stays unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from llmfw.core.interfaces.policy import Ordering, Waiting

from .sequence import SequenceState
from .tenants import Tenants


def take_turns(order: Ordering, waiting: Waiting, tenants: Tenants) -> Ordering:
    """Return an order in which the least served tenant comes first, as with the policy `fair`.

    An admitted request counts for its tenant at once, by its tokens to compute. Requests that the policy holds stay held.
    """
    if tenants.num_open_keys < 2 or not _are_several_keys(waiting.tenant, tenants.is_key):
        return order
    num_open = len(order.places) - order.num_held
    places = order.places[:num_open]
    tenant = waiting.tenant[places]
    by_tenant = np.argsort(tenant, kind="stable")
    cost = (waiting.num_tokens - waiting.num_cached)[places][by_tenant]
    before = np.cumsum(cost) - cost
    [firsts] = np.diff(tenant[by_tenant], prepend=-1).nonzero()
    before -= np.repeat(before[firsts], np.diff(firsts, append=num_open))
    counter = waiting.served[places]
    counter[by_tenant] += before
    turns = np.argsort(counter, kind="stable")
    return Ordering(np.concatenate((places[turns], order.places[num_open:])), order.num_held)


def above_share(
    first: SequenceState, running: Sequence[SequenceState], places: int, tenants: Tenants
) -> Iterator[SequenceState]:
    """Yield the running sequences that may be retracted for the first waiting one, by the shares of their tenants.

    A tenant's share is the number of places divided by the number of API keys with requests. If the waiting sequence's
    tenant has less than its share, tenants above theirs give sequences, the largest first, down to their share.

    Args:
        running: running sequences, in the order in which they would be retracted.
        places: maximum number of running sequences.
    """
    share = places // max(1, tenants.num_open_keys)
    if not tenants.is_key[first.tenant]:
        return
    held: dict[int, list[SequenceState]] = {}
    for seq in running:
        held.setdefault(seq.tenant, []).append(seq)
    if len(held.get(first.tenant, ())) >= share:
        return
    while held:
        most = max(held, key=lambda tenant: len(held[tenant]))
        if most == first.tenant or len(held[most]) <= share:
            return
        yield held[most].pop(0)


def _are_several_keys(tenant: npt.NDArray[np.int64], is_key: npt.NDArray[np.bool_]) -> bool:
    return len(tenant) > 1 and bool((tenant != tenant[0]).any()) and bool(is_key[tenant].all())
