"""Measures the time between the tokens of each sequence, for all sequences of a step at once."""

from __future__ import annotations

import numpy as np

from llmfw.core.base.histogram import TOKEN_BOUNDS, Histogram

from .sequence_table import Indices, Ints, SequenceTable

MAX_PENDING = 64
"""Number of steps whose gaps are sorted into the histograms together. Sorting costs more than recording."""

_BOUNDS = np.array(TOKEN_BOUNDS)


class TokenGaps:
    """Histograms of the seconds between two tokens of a sequence.

    A step that accepts drafted tokens counts once. The time in which a sequence is retracted or paused counts
    as a gap.

    Args:
        table: table of the sequences. No other class writes its column `token_at`.
    """

    def __init__(self, table: SequenceTable) -> None:
        self._table = table
        self._pending: list[tuple[float, np.ndarray, Ints]] = []
        self._counts = np.zeros(
            (2, len(TOKEN_BOUNDS) + 1), dtype=np.int64
        )  # histograms of live and deferrable sequences
        self._seconds = np.zeros(2)

    @property
    def live(self) -> Histogram:
        """Gaps of live sequences."""
        return self._histogram(0)

    @property
    def deferrable(self) -> Histogram:
        """Gaps of deferrable sequences."""
        return self._histogram(1)

    def note(self, indices: Indices, now: float) -> None:
        """Record that each of these sequences has received a token.

        Args:
            indices: indices of the sequences in the table: [B].
            now: monotonic time in seconds, above 0.
        """
        table = self._table
        self._pending.append((now, table.token_at[indices], table.is_deferrable[indices]))
        table.token_at[indices] = now
        if len(self._pending) >= MAX_PENDING:
            self._sort()

    def _histogram(self, group: int) -> Histogram:
        self._sort()
        return Histogram(TOKEN_BOUNDS, self._counts[group].tolist(), float(self._seconds[group]))

    def _sort(self) -> None:
        """Add the recorded gaps to the histograms. A sequence's first token has no gap."""
        if not self._pending:
            return
        before = np.concatenate([each[1] for each in self._pending])
        groups = np.concatenate([each[2] for each in self._pending])
        now = np.repeat([each[0] for each in self._pending], [len(each[1]) for each in self._pending])
        self._pending.clear()
        is_gap = before > 0
        gaps, groups = (now - before)[is_gap], groups[is_gap]
        buckets = _BOUNDS.searchsorted(gaps) + groups * (len(_BOUNDS) + 1)
        self._counts += np.bincount(buckets, minlength=self._counts.size).reshape(self._counts.shape)
        self._seconds += np.bincount(groups, weights=gaps, minlength=2)
