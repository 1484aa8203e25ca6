"""Splits the packed row of a step for modules that keep states, and moves the states.

Sequences that decode are computed together, [N, 1, hidden]. Pieces of prompts are computed one after another,
[1, T, hidden]. If a state has to be copied at a position within a piece, the piece is cut there, because
states exist only between parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from llmfw.core.base.step import NO_COPIES, Ints, StateCopies
from llmfw.core.interfaces.forward_batch import ForwardBatch
from llmfw.core.interfaces.state_storage import Slots, StateStorage

from .module_mixer import ModuleCall, Part
from .state_mixer import StateCall


class RowStates:
    """Runs the calls of modules that keep states, for one step.

    Args:
        parts: parts of the packed row, which together have each token once.
        storage: storage of the states; None: all sequences start, and their states are not kept.
    """

    def __init__(self, parts: Sequence[Part], storage: StateStorage | None = None) -> None:
        self._parts = parts
        self._storage = storage

    def mix(self, call: ModuleCall) -> Any:
        """Return the module's output for the whole row."""
        return call.answer(call.join([(part, self._run(call, part)) for part in self._parts]))

    def _run(self, call: ModuleCall, part: Part) -> Any:
        if self._storage is None or part.slots is None:
            return call.run(part, None)[0]
        assert isinstance(call, StateCall), "other modules' calls are for steps that keep nothing"
        index = call.mixer.layer.index
        before = self._storage.take(index, part.slots) if part.continues else None
        output, after = call.run(part, before)
        self._storage.put(index, part.slots, after)
        if part.copied_to is not None:
            self._storage.put(index, part.copied_to, after)
        return output


def starting_parts(lengths: Sequence[int]) -> list[Part]:
    """Return a part for each of several sequences that start, packed into one row."""
    ends = np.cumsum(lengths).tolist()
    return [Part(slice(end - length, end), 1, length) for length, end in zip(lengths, ends, strict=True)]


def parts_of(batch: ForwardBatch, rows: Ints, copies: StateCopies = NO_COPIES) -> list[Part]:
    """Return the parts of a step: pieces of sequences, and then all single tokens that continue a sequence.

    A piece is cut where a state is copied. If one token is left after the cut, it is computed together with the
    tokens of the sequences that decode.

    Args:
        rows: `batch.rows` on the host: [B].
        copies: states to copy to other slots during the step.
    """
    starts, cuts = batch.kv_lens - batch.query_lens, _cuts(copies)
    is_single = (batch.query_lens == 1) & (starts > 0)
    is_single[list(cuts)] = False
    places = np.flatnonzero(
        is_single
    ).tolist()  # these sequences come first, so a token's place is its sequence's index
    owners = list(places)
    firsts = (np.cumsum(batch.query_lens) - batch.kv_lens).tolist()  # place of each sequence's position 0
    parts = []
    for i in np.flatnonzero(~is_single).tolist():
        position, end = int(starts[i]), int(batch.kv_lens[i])
        for cut, slot in cuts.get(i, ()):
            parts.append(_piece(rows, i, firsts[i], position, cut, slot))
            position = cut
        if end - position == 1 and position:
            places.append(firsts[i] + position)
            owners.append(i)
        elif position < end:
            parts.append(_piece(rows, i, firsts[i], position, end))
    return [*parts, _together(batch, rows, places, owners)] if places else parts


def _cuts(copies: StateCopies) -> dict[int, list[tuple[int, int]]]:
    """Return the position and the slot of each copy, by index of the sequence."""
    cuts: dict[int, list[tuple[int, int]]] = {}
    columns = (copies.places.tolist(), copies.positions.tolist(), copies.slots.tolist())
    for place, position, slot in zip(*columns, strict=True):
        cuts.setdefault(place, []).append((position, slot))
    return cuts


def _piece(rows: Ints, i: int, first: int, start: int, end: int, slot: int | None = None) -> Part:
    """Return the part of positions [start, end) of sequence i, whose position 0 is at place `first`."""
    copied_to = None if slot is None else slice(slot, slot + 1)
    row = int(rows[i])
    tokens = slice(first + start, first + end)
    return Part(tokens, 1, end - start, slice(row, row + 1), continues=start > 0, copied_to=copied_to)


def _together(batch: ForwardBatch, rows: Ints, places: list[int], owners: list[int]) -> Part:
    """Return the part of the single tokens at these places, which continue different sequences.

    If the sequences' rows are a range, the part is in the order of the rows, so that its states need not be
    gathered.
    """
    num = len(owners)
    used = rows[owners]
    first = int(used.min())
    is_range = int(used.max()) - first == num - 1
    if is_range:
        order = np.argsort(used).tolist()
        places, owners = [places[i] for i in order], [owners[i] for i in order]
    is_whole = owners == list(range(batch.num_single)) == places
    if is_whole:
        tokens: slice | torch.Tensor = slice(0, num)
    elif is_range:
        tokens = torch.tensor(places, device=batch.device)
    else:
        tokens, chosen = torch.tensor([places, owners], device=batch.device)
    if is_range:
        slots: Slots = slice(first, first + num)
    else:
        slots = batch.rows[:num] if is_whole else batch.rows[chosen]
    return Part(tokens, num, 1, slots, continues=True)
