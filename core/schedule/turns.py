"""Makes API keys take turns in admission under any policy.

Among the requests of one key, the policy's order holds. Users that a client names do not take turns, because
a client could get many turns by naming many users. If all requests belong to one key, the policy's order is
unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from llmfw.core.interfaces.policy import Ordering, Waiting

from .sequence import SequenceState
from .tenants import Tenants


def take_turns(order: Ordering, waiting: Waiting, tenants: Tenants) -> Ordering:
    """Reorder waiting requests: the tenant served least comes first, as in the policy `fair`.

    A request's rank is its tenant's `served` (see `Tenants`), plus the uncached tokens of the tenant's
    requests before it in `order`. Held-back requests stay last.

    Leaves the order unchanged unless at least two API keys have live requests, all waiting requests have an
    API key, and they belong to several tenants.
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
    """Yield the running sequences that may be retracted for the first waiting one, by their tenants' shares.

    A tenant's share is the maximum number of running sequences divided by the number of API keys with
    requests. If the waiting sequence's tenant is an API key that runs fewer sequences than its share,
    sequences of tenants above their share are yielded. Each yielded sequence belongs to the tenant that runs
    the most sequences once the previously yielded ones are retracted.

    Args:
        first: the first waiting sequence.
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
