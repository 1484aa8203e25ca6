"""The nearest deadline first.

Knows deadlines and the lengths of prompts, and nothing of how long an answer becomes: nobody does.
"""

from typing import Annotated

import msgspec
import numpy as np

from llmfw.core import Figures, Ordering, SchedulePolicy, Waiting


class Deadline(SchedulePolicy):
    """Admits first what has to be answered soonest; equals by arrival.

    The price: a request with a near deadline overtakes as many others as it likes. Those that give no deadline get one
    when they come, so that none of them is overtaken for ever.
    """

    class Options(SchedulePolicy.Options, frozen=True):
        """What can be set.

        Attributes:
            patience_s: a request without a timeout has to be answered so many seconds after it came.
            prompt_tokens_per_s: how fast prompts are computed; those that cannot be before their timeout go last.
                0: none do.
        """

        patience_s: Annotated[float, msgspec.Meta(gt=0)] = 60.0
        prompt_tokens_per_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0

    options: Options

    def order(self, waiting: Waiting, figures: Figures) -> Ordering:
        has_none = np.isinf(waiting.time_left)
        left = np.where(has_none, self.options.patience_s - waiting.waited, waiting.time_left)
        return Ordering.by(self._is_lost(waiting), left, waiting.arrival)

    def _is_lost(self, waiting: Waiting) -> np.ndarray:
        """Return for each request whether its timeout passes before its prompt is computed: [W]."""
        if not self.options.prompt_tokens_per_s:
            return np.zeros(len(waiting), dtype=np.int64)
        needed = (waiting.num_tokens - waiting.num_cached) / self.options.prompt_tokens_per_s
        return (needed > waiting.time_left).astype(np.int64)
