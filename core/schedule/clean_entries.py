"""Tracks how many leading entries of each page table row are unchanged since they were last copied."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from llmfw.core.base.step import NO_INTS, Ints


class CleanEntries:
    """Tracks the clean entries of each row: leading entries unchanged since `take` returned them.

        row        [ 7 3 9 4 4 1 . . ]    pages
                     └ clean ┘            taken, and unchanged since
                             └─┘          written since, or never taken: `take` returns these

    Entries after the clean ones are never clean, so code that only appends pages need not call `invalidate`.

    Args:
        num_rows: number of rows of the page table.
    """

    def __init__(self, num_rows: int) -> None:
        self._num_clean = np.zeros(num_rows, dtype=np.int64)

    def invalidate(self, row: int, index: int) -> None:
        """Mark a row as overwritten from index `index` on: those entries are no longer clean."""
        self._num_clean[row] = min(self._num_clean[row], index)

    def take(self, rows: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> tuple[Ints, Ints]:
        """Return the positions of the entries in these rows that are not clean; mark them as clean.

        Args:
            rows: row numbers without repetition: [B].
            ends: number of leading entries to consider in each row: [B].

        Returns:
            The row and the column of each entry: [N], [N].
        """
        starts = self._num_clean[rows]
        counts = ends - starts
        most = counts.max(initial=0)
        if most <= 0:
            return NO_INTS, NO_INTS
        self._num_clean[rows] = np.maximum(starts, ends)
        if most == 1:  # as in nearly every step
            is_one = counts == 1
            return (rows, starts) if is_one.all() else (rows[is_one], starts[is_one])
        counts = np.maximum(counts, 0)
        first = np.cumsum(counts) - counts
        return np.repeat(rows, counts), np.arange(int(counts.sum())) + np.repeat(starts - first, counts)
