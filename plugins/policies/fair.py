"""Fair shares for tenants: the virtual token counter of Sheng et al., "Fairness in Serving Large Language Models" (2024)."""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np

from llmfw.core.policy import Figures, Floats, Order, SchedulePolicy, Waiting


class Fair(SchedulePolicy):
    """Admits next the oldest request of the tenant that has had the fewest tokens; equals by arrival.

    A request that is admitted counts for its tenant at once, so that of many tenants that wait each gets its turn
    within one step, too. The price: what is cached, and who came first of two tenants, counts for nothing.
    """

    class Options(SchedulePolicy.Options, frozen=True):
        """What can be set.

        Attributes:
            input_weight: what a token of the prompt counts for, as in `served`.
        """

        input_weight: Annotated[float, msgspec.Meta(ge=0)] = 1.0

    options: Options

    def order(self, waiting: Waiting, figures: Figures) -> Order:
        cost: Floats = np.multiply(waiting.num_tokens - waiting.num_cached, self.options.input_weight)
        return Order.by(waiting.served + cost_before(waiting, cost), waiting.arrival)


def cost_before(waiting: Waiting, cost: Floats) -> Floats:
    """Return for each request the cost of those of its tenant that came before it and wait: [W]."""
    places = Order.by(waiting.tenant, waiting.arrival).places
    before = np.zeros(len(waiting) + 1)
    np.cumsum(cost[places], out=before[1:])
    tenant = waiting.tenant[places]
    is_first = np.ones(len(waiting), dtype=bool)
    is_first[1:] = tenant[1:] != tenant[:-1]
    [firsts] = is_first.nonzero()
    found = np.empty(len(waiting))
    found[places] = before[:-1] - before[firsts][np.cumsum(is_first) - 1]
    return found
