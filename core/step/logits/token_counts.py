"""Counts on the device how often each row generated each token, as a list of (token, count) entries per row.

Lists are used because a row has only hundreds of different tokens, while the vocabulary has a hundred
thousand. Reading several rows returns arrays as wide as the longest of their lists; shorter lists are padded
with copies of their first entry. This padding is harmless for code that computes a value from each entry and
writes the value at the token's index: for a repeated entry, it only writes the same value several times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from llmfw.core.base.step import Ints

from ..device.staging import Staging

LEAST_WIDTH = 64

TokensAndCounts = tuple[npt.NDArray[np.integer], npt.NDArray[np.number]]
"""Distinct tokens and their counts, on the host: [n], [n]."""


@dataclass(frozen=True, slots=True)
class Entries:
    """The (token, count) lists of some rows, on the device.

    Attributes:
        rows: row numbers without repetition: [R].
        ends: number of entries in each row's list: [R].
        ids: token ids, int64: [R, width].
        counts: counts, float32: [R, width]; None if they are not requested.
    """

    rows: torch.Tensor
    ends: torch.Tensor
    ids: torch.Tensor
    counts: torch.Tensor | None


class TokenCounts:
    """Stores the (token, count) lists of all rows.

    Takes 12 bytes per entry. Each row has room for as many entries as the longest list so far.

    Args:
        max_rows: number of rows.
        staging: sends lists to the device.
        device: device of the lists.
    """

    def __init__(self, max_rows: int, staging: Staging, device: torch.device) -> None:
        self._staging = staging
        self._ids = torch.zeros((max_rows, 0), dtype=torch.long, device=device)
        self._counts = torch.zeros((max_rows, 0), dtype=torch.float32, device=device)
        self._ends = np.zeros(max_rows, dtype=np.int64)

    def write(self, rows: Sequence[int], lists: Sequence[TokensAndCounts]) -> None:
        """Replace the lists of some rows. An empty list is stored as token 0 with count 0."""
        width = max(1, *(len(ids) for ids, _ in lists))
        all_ids = np.zeros((len(rows), width), dtype=np.int64)
        all_counts = np.zeros((len(rows), width), dtype=np.float32)
        for i, (ids, counts) in enumerate(lists):
            all_ids[i, : len(ids)] = ids
            all_counts[i, : len(ids)] = counts
        places = np.array(rows, dtype=np.int64)
        self._ends[places] = [max(1, len(ids)) for ids, _ in lists]
        self._widen(width)
        at, new_ids, new_counts = self._staging.send(places, all_ids, all_counts)
        self._ids[:, :width].index_copy_(0, at, new_ids)
        self._counts[:, :width].index_copy_(0, at, new_counts)

    def ends(self, rows: Ints) -> Ints:
        """Return the number of entries of each row: [R]."""
        return self._ends[rows]

    def read(self, rows: torch.Tensor, ends: torch.Tensor, known_ends: Ints, *, with_counts: bool) -> Entries:
        """Return the padded lists of some rows.

        Args:
            rows: row numbers, on the device: [R].
            ends: number of entries of each row, on the device: [R].
            known_ends: the same numbers as `ends`, on the host: [R].
            with_counts: whether to return counts.
        """
        width = int(known_ends.max())
        tables = (self._ids, self._counts) if with_counts else (self._ids,)
        found = [table[:, :width].index_select(0, rows) for table in tables]
        if known_ends.min() < width:
            is_there = torch.arange(width, device=rows.device) < ends[:, None]
            found = [torch.where(is_there, values, values[:, :1]) for values in found]
        return Entries(rows, ends, found[0], found[1] if with_counts else None)

    def add(self, rows: Ints, entries: Entries, tokens: torch.Tensor) -> None:
        """Count one more token in each row.

        Args:
            rows: row numbers, on the host: [R].
            entries: last result of `read` for these rows.
            tokens: token to count in each row, on the device: [R].
        """
        self._ends[rows] += 1
        self._widen(int(self._ends[rows].max()))
        # The token is appended even if the list has it already: all its entries get the same count.
        end = (entries.rows, entries.ends)
        self._ids.index_put_(end, tokens)
        if entries.counts is not None:
            is_same = entries.ids == tokens[:, None]
            count = torch.where(is_same, entries.counts, 0).amax(dim=-1) + 1
            self._counts[:, : is_same.shape[1]].index_add_(0, entries.rows, is_same.float())
            self._counts.index_put_(end, count)

    def _widen(self, width: int) -> None:
        """Enlarge the tables so that each row has room for `width` entries."""
        old = self._ids.shape[1]
        if width > old:
            more = max(LEAST_WIDTH, 1 << (width - 1).bit_length()) - old
            self._ids, self._counts = (
                torch.cat([table, table.new_zeros((len(table), more))], dim=1)
                for table in (self._ids, self._counts)
            )
