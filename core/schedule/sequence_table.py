"""Table of the sequences' numeric fields, one array per field, so that a step updates many sequences at once.

index        0   1   2   3   4   5
length     [ 9  31   .  12   .  87 ]    a sequence has the same index until it ends;
num_pages  [ 1   2   .   0   .   6 ]    the index is then reused
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from .sequence import SequenceState

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
"""Indices of sequences in the table."""

COUNTS, TOKENS = 1, 2
"""Flags of the column `tracking`."""


class SequenceTable:
    """Columns of numbers, indexed by sequence. `SequenceState` exposes some columns as attributes (`Number`).

    Attributes:
        arrival: position in the order of arrival.
        priority: priority that the client requested.
        tenant: number of the tenant.
        came_at: time of arrival, in seconds on the scheduler's clock.
        deadline: deadline, in seconds on the scheduler's clock; infinity: no deadline.
        prompt_len: number of prompt tokens.
        max_len: maximum number of tokens, prompt and output.
        length: number of tokens, known or in flight.
        num_in_flight: number of tokens that are sampled by a launched step and not read back yet.
        num_computed: number of tokens whose keys and values are in pages, or will be once all launched steps
            have run.
        num_cached: number of leading tokens in the prefix cache. Up to date only while the sequence has a
            subscription.
        overtaken: number of later arrivals that were admitted before this sequence.
        row: row of the page table; -1 if there is none.
        is_new: 1 from the assignment of the row until the first step, then 0.
        num_pages: number of pages in the row.
        num_shared_pages: number of pages in the row that the prefix cache owns.
        last_token: last known token of the output.
        tracking: data that the executor tracks about the sequence's tokens. A sum of flags: COUNTS, if the
            request uses penalties; TOKENS, if it uses a logits processor that needs the tokens. 0: no data.
        is_scored: 1 if the request asks for its prompt's log probabilities, else 0.
        num_counted: number of output tokens that the executor tracks, including one in flight; -1 if the
            executor tracks nothing for the row yet.
        place: index in the waiting queue.
        is_deferrable: 1 if the request is deferrable, else 0.
        adapter: number of the adapter, from 1; 0: no adapter.
        slot: number of the adapter's slot while the sequence runs, from 1; 0: no adapter.
        shift: difference of the rotary position from the index, for tokens after the prompt.
        token_at: time of the last token (see `TokenGaps`); 0 before the first.
        uses_slots: whether any sequence has had an adapter's slot. If not, steps need not read `slot`.
    """

    arrival: Ints
    priority: Ints
    tenant: Ints
    prompt_len: Ints
    max_len: Ints
    length: Ints
    num_in_flight: Ints
    num_computed: Ints
    num_cached: Ints
    overtaken: Ints
    row: Ints
    is_new: Ints
    num_pages: Ints
    num_shared_pages: Ints
    last_token: Ints
    tracking: Ints
    is_scored: Ints
    num_counted: Ints
    place: Ints
    is_deferrable: Ints
    adapter: Ints
    slot: Ints
    shift: Ints
    came_at: Floats
    deadline: Floats
    token_at: Floats

    _INTS = (
        *(
            "arrival",
            "priority",
            "tenant",
            "prompt_len",
            "max_len",
            "length",
            "num_in_flight",
            "num_computed",
        ),
        *("num_cached", "overtaken", "row", "is_new", "num_pages", "num_shared_pages", "last_token"),
        *("tracking", "is_scored", "num_counted", "place", "is_deferrable", "adapter", "slot", "shift"),
    )
    _FLOATS = ("came_at", "deadline", "token_at")

    def __init__(self, capacity: int = 64) -> None:
        self._use(np.zeros((len(self._INTS), capacity), np.int64), np.zeros((len(self._FLOATS), capacity)))
        self.uses_slots = False
        self._fields: dict[str, Floats] = {}
        self._sequences: list[SequenceState | None] = [None] * capacity
        self._free = list(range(capacity - 1, -1, -1))

    def add(self, seq: SequenceState) -> int:
        """Add a sequence, with 0 in all columns; return its index."""
        if not self._free:
            self._grow()
        index = self._free.pop()
        self._sequences[index] = seq
        self._ints[:, index] = 0
        self._floats[:, index] = 0
        for name, column in self._fields.items():
            column[index] = _number_in(seq, name)
        return index

    def field_column(self, name: str) -> Floats:
        """Return the column of a request field: the number that each request sets, or NaN.

        The first call for a field creates its column. So a server whose policy reads no fields has no such
        columns.
        """
        column = self._fields.get(name)
        if column is None:
            column = np.full(len(self._sequences), np.nan)
            for index, seq in enumerate(self._sequences):
                if seq is not None:
                    column[index] = _number_in(seq, name)
            self._fields[name] = column
        return column

    def remove(self, index: int) -> None:
        """Remove a sequence; its index may be reused."""
        self._sequences[index] = None
        self._free.append(index)

    def at(self, index: int) -> SequenceState:
        """Return the sequence at an index."""
        seq = self._sequences[index]
        assert seq is not None
        return seq

    def sequences(self, indices: Indices) -> list[Any]:
        """Return the sequences at these indices: `SequenceState`s."""
        all_of_them = self._sequences
        return [all_of_them[index] for index in indices.tolist()]

    def _use(self, ints: Ints, floats: Floats) -> None:
        """Use these arrays, whose rows are the columns: [number of columns, capacity] each."""
        self._ints, self._floats = ints, floats
        for name, column in zip((*self._INTS, *self._FLOATS), (*ints, *floats), strict=True):
            setattr(self, name, column)

    def _grow(self) -> None:
        before = len(self._sequences)
        more = ((0, 0), (0, before))
        self._use(np.pad(self._ints, more), np.pad(self._floats, more))
        for name, numbers in self._fields.items():
            self._fields[name] = np.concatenate([numbers, np.full_like(numbers, np.nan)])
        self._sequences += [None] * before
        self._free += range(2 * before - 1, before - 1, -1)


def _number_in(seq: SequenceState, name: str) -> float:
    """Return the number that a sequence's request sets for a field; NaN if the field has no number."""
    value = seq.request.fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # an integer of more than 300 digits
        return math.inf if value > 0 else -math.inf


class Number:
    """Descriptor for a sequence's attribute that is stored in the table's column of the same name."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, seq: None, owner: type) -> Number: ...

    @overload
    def __get__(self, seq: SequenceState, owner: type) -> int: ...

    def __get__(self, seq: SequenceState | None, owner: type) -> int | Number:
        """Return the sequence's number; on the class, the descriptor."""
        return self if seq is None else int(getattr(seq.table, self._name)[seq.index])

    def __set__(self, seq: SequenceState, value: int) -> None:
        """Set the sequence's number."""
        getattr(seq.table, self._name)[seq.index] = value
