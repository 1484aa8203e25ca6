"""The numbers of all sequences, in one column per kind of number, so that a step updates hundreds of sequences at once.

index        0   1   2   3   4   5
length     [ 9  31   .  12   .  87 ]    one place for each sequence, for its whole life;
num_pages  [ 1   2   .   0   .   6 ]    the places of sequences that ended are used again
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from .sequence import SequenceState

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
"""Places in the table."""


class SequenceTable:
    """One column for each number that every sequence has. The owner of a number writes its column (see `SequenceState`).

    Attributes:
        arrival: position in the order of arrival.
        priority: priority that the client asked for.
        tenant: number of the tenant.
        came_at: arrival, in seconds on the scheduler's clock.
        deadline: deadline, in seconds on the same clock; infinity without one.
        prompt_len: number of prompt tokens.
        max_len: maximum number of tokens, prompt and output.
        length: number of tokens, known or in flight.
        num_in_flight: number of tokens launched and not read back.
        num_computed: number of tokens that the steps launched so far have put, or will have put, into pages.
        num_cached: number of leading tokens in the prefix cache, while it waits.
        overtaken: number of later arrivals that were admitted before it.
        row: row of the page table; -1 without one.
        is_new: 1 from the time it gets its row until its first step.
        num_pages: number of pages in its row.
        num_shared_pages: number of these that the prefix cache owns.
        last_token: last known token of its output.
        is_penalised: 1 if tokens are penalised by how often they were generated.
        is_scored: 1 if its prompt's log probabilities are requested.
        num_counted: output tokens that the executor's penalties count, with one in flight; -1: none since it got its row.
        place: place in the waiting queue.
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
    is_penalised: Ints
    is_scored: Ints
    num_counted: Ints
    place: Ints
    came_at: Floats
    deadline: Floats

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
        *("is_penalised", "is_scored", "num_counted", "place"),
    )
    _FLOATS = ("came_at", "deadline")

    def __init__(self, capacity: int = 64) -> None:
        for names, dtype in ((self._INTS, np.int64), (self._FLOATS, np.float64)):
            for name in names:
                setattr(self, name, np.zeros(capacity, dtype=dtype))
        self._sequences: list[SequenceState | None] = [None] * capacity
        self._free = list(range(capacity - 1, -1, -1))

    def add(self, seq: SequenceState) -> int:
        """Give a sequence a place, whose numbers are all 0; return its index."""
        if not self._free:
            self._grow()
        index = self._free.pop()
        self._sequences[index] = seq
        for name in (*self._INTS, *self._FLOATS):
            getattr(self, name)[index] = 0
        return index

    def remove(self, index: int) -> None:
        """Take a sequence's place."""
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

    def _grow(self) -> None:
        before = len(self._sequences)
        for name in (*self._INTS, *self._FLOATS):
            column = getattr(self, name)
            setattr(self, name, np.concatenate([column, np.zeros_like(column)]))
        self._sequences += [None] * before
        self._free += range(2 * before - 1, before - 1, -1)


class Number:
    """An attribute of a sequence that stands in the column of the same name."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, seq: None, owner: type) -> Number: ...

    @overload
    def __get__(self, seq: SequenceState, owner: type) -> int: ...

    def __get__(self, seq: SequenceState | None, owner: type) -> int | Number:
        """Return the number."""
        return self if seq is None else int(getattr(seq.table, self._name)[seq.index])

    def __set__(self, seq: SequenceState, value: int) -> None:
        """Change the number."""
        getattr(seq.table, self._name)[seq.index] = value
