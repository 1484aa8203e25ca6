"""Turns between tenants: which one is admitted next, whatever the policy. Within a tenant the policy's order stays.

It holds for tenants that are API keys. What a client itself says of its user counts for nothing here: by naming many
users it would get many turns. With requests of one key nothing is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from llmfw.core.interfaces.policy import Order, Waiting

from .sequence import SequenceState
from .tenants import Tenants


def take_turns(order: Order, waiting: Waiting, tenants: Tenants) -> Order:
    """Return an order in which the tenant that was served least comes first, as `fair` has it.

    A request that is admitted counts for its tenant at once, by its tokens to compute. What the policy holds stays held.
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
    return Order(np.concatenate((places[turns], order.places[num_open:])), order.num_held)


def above_share(
    first: SequenceState, running: Sequence[SequenceState], places: int, tenants: Tenants
) -> Iterator[SequenceState]:
    """Yield the running sequences that may be retracted for the first that waits, by the shares of their tenants.

    A tenant's share is the places divided by the tenants that wait or run. If the one that waits has less than its
    share, those that have more give, the one with the most first, and none more than what is above its share.

    Args:
        running: in the order in which they would be retracted.
        places: most sequences that run.
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
