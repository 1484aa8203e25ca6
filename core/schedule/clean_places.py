"""How much of each row of the page table has stayed as it was when it was last copied."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from llmfw.core.base.step import NO_INTS, Ints


class CleanPlaces:
    """The first places of each row that have not been written anew since they were taken.

        row        [ 7 3 9 4 4 1 . . ]    pages
                     └ clean ┘            taken, and the same since
                             └─┘          written since, or never taken: what `take` gives

    Writing past the clean places changes nothing, so whoever only adds pages need not say so.

    Args:
        num_rows: of the page table.
    """

    def __init__(self, num_rows: int) -> None:
        self._num_clean = np.zeros(num_rows, dtype=np.int64)

    def spoil(self, row: int, place: int) -> None:
        """Take note that a row has been written, from a place on."""
        self._num_clean[row] = min(self._num_clean[row], place)

    def take(self, rows: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> tuple[Ints, Ints]:
        """Return which places of these rows, up to the ends, are not clean, which they are from now on.

        Args:
            rows: each once, [B].
            ends: of each, how many of its first places are wanted: [B].

        Returns:
            the row and the place of each: [N], [N].
        """
        starts = self._num_clean[rows]
        counts = np.maximum(ends - starts, 0)
        if not np.count_nonzero(counts):
            return NO_INTS, NO_INTS
        self._num_clean[rows] = np.maximum(starts, ends)
        first = np.cumsum(counts) - counts
        return np.repeat(rows, counts), np.arange(int(counts.sum())) + np.repeat(starts - first, counts)
