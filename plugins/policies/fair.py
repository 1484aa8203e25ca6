"""Fair shares for tenants: the virtual token counter of Sheng et al. (2024).

Source: "Fairness in Serving Large Language Models".
"""

from __future__ import annotations

import numpy as np

from llmfw.core.interfaces.policy import Figures, Floats, Ordering, SchedulePolicy, Waiting


class Fair(SchedulePolicy):
    """Admits the oldest request of the tenant that has had the fewest tokens so far; breaks ties by arrival.

    An admitted request counts for its tenant at once, so waiting tenants take turns even within one step. The
    drawback: cached prefixes, and the order of arrival across tenants, are ignored.
    """

    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        return Ordering.by(waiting.served + cost_before(waiting), waiting.arrival)


def cost_before(waiting: Waiting) -> Floats:
    """Return, for each waiting request, the uncached tokens of the same tenant's earlier requests: [W]."""
    places = Ordering.by(waiting.tenant, waiting.arrival).places
    before = np.zeros(len(waiting) + 1)
    np.cumsum((waiting.num_tokens - waiting.num_cached)[places], out=before[1:])
    tenant = waiting.tenant[places]
    is_first = np.ones(len(waiting), dtype=bool)
    is_first[1:] = tenant[1:] != tenant[:-1]
    [firsts] = is_first.nonzero()
    found = np.empty(len(waiting))
    found[places] = before[:-1] - before[firsts][np.cumsum(is_first) - 1]
    return found
