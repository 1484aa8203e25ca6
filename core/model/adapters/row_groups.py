"""The rows of a step that belong to adapters, grouped by slot or padded for a batched product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from llmfw.core.base.step import Ints

MAX_WASTE = 4
"""Limit of two ratios for a batched product: rows with padding to rows without padding, and slots that are
read to slots with rows. Above the limit, each adapter has its own product."""


class Sender(Protocol):
    """Sends arrays to the device that computes steps, as `Staging` does."""

    def send(self, *arrays: npt.NDArray[Any]) -> list[torch.Tensor]:
        """Return the arrays as tensors on the device."""


@dataclass(frozen=True, slots=True)
class Batched:
    """Rows of several slots. Padding gives each slot the same number of rows, for one batched product.

    Attributes:
        first, last: range of slots [first, last), including slots without rows.
        padded: indices of each slot's rows, padded with the index of an arbitrary row: [last - first, most].
        places: index of each of the step's rows in the flat `padded`: [n].
        rows: indices of these rows: [n].
    """

    first: int
    last: int
    padded: torch.Tensor
    places: torch.Tensor
    rows: torch.Tensor


@dataclass(frozen=True, slots=True)
class RowGroups:
    """The rows of one step that belong to adapters. A row is a token.

    Attributes:
        num_rows: number of rows of the step, including rows without an adapter.
        slots: slots with rows, ascending.
        of_slots: indices of each slot's rows, in the order of `slots`; None: all rows of the step. Empty if the rows are
            batched.
        batched: the rows of all slots together; None: they are not batched.
    """

    num_rows: int
    slots: Sequence[int]
    of_slots: Sequence[torch.Tensor | None] = ()
    batched: Batched | None = None

    @classmethod
    def of(cls, adapters: Ints, counts: Ints, sender: Sender) -> RowGroups:
        """Return the groups of a step in which at least one sequence has an adapter.

        Args:
            adapters: slot of each sequence's adapter, or -1: [B].
            counts: number of tokens of each sequence: [B].
            sender: sends the indices to the device.
        """
        slots_of_rows = np.repeat(adapters, counts)
        num_rows = len(slots_of_rows)
        rows = np.flatnonzero(slots_of_rows >= 0)
        mine = slots_of_rows[rows]
        slots, numbers = np.unique(mine, return_counts=True)
        if len(slots) == 1 and len(rows) == num_rows:
            return cls(num_rows, slots.tolist(), [None])
        width, most = int(slots[-1] - slots[0] + 1), int(numbers.max())
        if len(slots) > 1 and width * most <= MAX_WASTE * len(rows) and width <= MAX_WASTE * len(slots):
            return cls(num_rows, slots.tolist(), batched=_batched(rows, mine, slots, numbers, sender))
        return cls(num_rows, slots.tolist(), sender.send(*(rows[mine == slot] for slot in slots)))


def _batched(rows: Ints, mine: Ints, slots: Ints, numbers: Ints, sender: Sender) -> Batched:
    """Return the rows of several slots, padded.

    Args:
        rows: indices of the rows: [n].
        mine: slot of each row: [n].
        slots: slots with rows, ascending: [k].
        numbers: number of rows of each slot in `slots`: [k].
    """
    first, last, most = int(slots[0]), int(slots[-1]) + 1, int(numbers.max())
    order = np.argsort(mine, kind="stable")
    rows = rows[order]
    starts = np.cumsum(numbers) - numbers
    places = (mine[order] - first) * most + np.arange(len(rows)) - np.repeat(starts, numbers)
    padded = np.full((last - first) * most, rows[0])
    padded[places] = rows
    sent = sender.send(padded.reshape(-1, most), places, rows)
    return Batched(first, last, *sent)
