"""Shortest job first."""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np

from llmfw.core import Figures, Order, SchedulePolicy, Waiting

from .ageing import aged

MAX_OUTPUT_COUNTED = 4096
"""Of what a request may generate, so much is counted: many do not say, and may generate all that the context holds."""


class SJF(SchedulePolicy):
    """Orders by the tokens that a request still needs, fewest first; equals by arrival.

    These are the tokens of its prompt that are not cached, and those that it may generate. It is not known how many
    it will generate: it may end long before its `max_tokens`, and those without one all count as equally long.
    """

    class Options(SchedulePolicy.Options, frozen=True):
        """What can be set.

        Attributes:
            output_weight: a token that may be generated counts as much as so many tokens of the prompt.
            max_overtaken: no request is overtaken by more later ones; 0: there is no bound.
        """

        output_weight: Annotated[float, msgspec.Meta(ge=0)] = 1.0
        max_overtaken: Annotated[int, msgspec.Meta(ge=0)] = 256

    options: Options

    def order(self, waiting: Waiting, figures: Figures) -> Order:
        output = np.minimum(waiting.num_to_come, MAX_OUTPUT_COUNTED)
        needed = waiting.num_tokens - waiting.num_cached + self.options.output_weight * output
        return aged(Order.by(needed, waiting.arrival), waiting, figures, self.options.max_overtaken)
