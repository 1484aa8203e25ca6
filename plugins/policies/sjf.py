"""The policy `sjf`: shortest job first."""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np

from llmfw.core import Figures, Ordering, SchedulePolicy, Waiting

from .aging import aged

MAX_OUTPUT_COUNTED = 4096
"""Maximum number of output tokens counted for a request.

Without `max_tokens`, a request may generate up to the whole context.
"""


class SJF(SchedulePolicy):
    """Orders by the number of tokens that a request still needs, fewest first; breaks ties by arrival.

    Counts the uncached tokens of the prompt and the tokens that the request may generate. The policy cannot
    predict the output length: a request may end long before its `max_tokens`, and all requests
    without `max_tokens` count as equally long.
    """

    class Options(SchedulePolicy.Options, frozen=True):
        """Options of the policy.

        Attributes:
            output_weight: cost of one possible output token, in prompt tokens.
            max_overtaken: maximum number of later requests that may overtake a request; 0: no bound.
        """

        output_weight: Annotated[float, msgspec.Meta(ge=0)] = 1.0
        max_overtaken: Annotated[int, msgspec.Meta(ge=0)] = 256

    options: Options

    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        output = np.minimum(waiting.num_to_come, MAX_OUTPUT_COUNTED)
        needed = waiting.num_tokens - waiting.num_cached + self.options.output_weight * output
        return aged(Ordering.by(needed, waiting.arrival), waiting, figures, self.options.max_overtaken)
