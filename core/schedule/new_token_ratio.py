"""Estimates how many tokens running sequences will still need; corrects the estimate after a retraction.

As in SGLang, the estimate is a fraction (the ratio) of the tokens that running sequences may still generate.
The ratio is never above 1. It starts at 0.7 times `--schedule-conservativeness`, and falls linearly to 14% of
its start over 600 steps. A retraction sets it to (generated tokens + 20 per sequence) / allowed tokens. Both
sums include only the sequences that still run.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from .sequence import SequenceState
from .sequence_table import Indices, SequenceTable

MAX_NEW_TOKENS_COUNTED = 4096
"""Maximum number of future tokens counted per sequence, so that a huge `max_tokens` does not block other
sequences."""

INITIAL_RATIO = 0.7
MIN_RATIO_FACTOR = 0.14
DECAY_STEPS = 600
STEPS_AFTER_RETRACTION = 20


class NewTokenRatio:
    """Ratio of the expected number of new tokens of running sequences to the allowed number.

    Args:
        conservativeness: factor on the initial ratio; larger means fewer retractions and smaller batches.
    """

    def __init__(self, conservativeness: float = 1.0) -> None:
        self._initial = min(INITIAL_RATIO * conservativeness, 1.0)
        self._minimum = self._initial * MIN_RATIO_FACTOR
        self.value = self._initial

    def decay(self) -> None:
        """Lower the ratio a little, after a step without a retraction."""
        self.value = max(self._minimum, self.value - (self._initial - self._minimum) / DECAY_STEPS)

    def correct(self, running: Iterable[SequenceState]) -> tuple[float, float]:
        """Correct the ratio after a retraction; return the ratio before and after.

        Args:
            running: sequences that still run.
        """
        before = self.value
        generated = allowed = 0
        for seq in running:
            generated += seq.num_output + STEPS_AFTER_RETRACTION
            allowed += seq.max_tokens
        self.value = min(1.0, generated / allowed) if allowed else 1.0
        return before, self.value

    def expected_tokens(self, table: SequenceTable, running: Indices, page_size: int) -> float:
        """Return the number of tokens that running sequences are expected to need beyond their pages."""
        length = table.length[running]
        to_come = np.minimum(table.max_len[running] - length, MAX_NEW_TOKENS_COUNTED)
        held = table.num_pages[running] * page_size
        return float(np.maximum(length + self.value * to_come - held, 0.0).sum())
