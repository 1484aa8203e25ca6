"""The packed row of a step is split into parts, which have each token once, and states where they are copied."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from llmfw.core.base.step import NO_COPIES, StateCopies
from llmfw.core.interfaces.forward_batch import ForwardBatch
from llmfw.core.model.states import row_states
from llmfw.core.model.states.module_mixer import Part
from llmfw.core.model.states.state_mixer import StateCall


def batch(starts: list[int], counts: list[int], rows: list[int] | None = None) -> ForwardBatch:
    """Return a batch of sequences, in rows 10, 11, … if none are given; those with one token come first."""
    num = len(starts)
    kv_lens = np.array(starts) + counts
    positions = np.concatenate([np.arange(start, end) for start, end in zip(starts, kv_lens, strict=True)])
    return ForwardBatch(
        positions=positions,
        slots=torch.zeros(len(positions), dtype=torch.long),
        query_lens=np.array(counts),
        kv_lens=kv_lens,
        rows=torch.arange(10, 10 + num) if rows is None else torch.tensor(rows),
        page_table=torch.zeros(30, 1),
        num_single=counts.count(1),
        page_size=1,
    )


def parts_of(given: ForwardBatch, states: StateCopies = NO_COPIES) -> list[Part]:
    return row_states.parts_of(given, given.rows.numpy(), states)


def numbers(given: slice | torch.Tensor | None) -> list[int]:
    """Return the numbers of a range, or of a tensor."""
    if given is None:
        return []
    return list(range(given.start, given.stop)) if isinstance(given, slice) else given.tolist()


def plain(part: Part) -> tuple[list[int], list[int], int, bool, list[int]]:
    """Return a part's tokens, slots, tokens of each sequence, whether it continues, and the slot of a copy."""
    places, slots, to = numbers(part.tokens), numbers(part.slots), numbers(part.copied_to)
    return places, slots, part.num_tokens, part.continues, to


def copies(*each: tuple[int, int, int]) -> StateCopies:
    """Return the copies with these places, positions and slots."""
    places, positions, slots = np.array(each, dtype=np.int64).T
    return StateCopies(places=places, positions=positions, slots=slots)


def test_sequences_that_decode_are_one_part() -> None:
    [part] = parts_of(batch([4, 9], [1, 1]))
    assert part.tokens == slice(0, 2)
    assert plain(part) == ([0, 1], [10, 11], 1, True, [])


def test_rows_of_a_range_are_in_order() -> None:
    """A range of the states' storage is read and written in place, without being gathered."""
    [part] = parts_of(batch([4, 9, 5], [1, 1, 1], [12, 10, 11]))
    assert part.slots == slice(10, 13)
    assert plain(part)[0] == [1, 2, 0]


def test_rows_with_gaps_keep_their_order() -> None:
    [part] = parts_of(batch([4, 9, 5], [1, 1, 1], [12, 10, 14]))
    assert isinstance(part.slots, torch.Tensor)
    assert plain(part)[:2] == ([0, 1, 2], [12, 10, 14])


def test_pieces_are_parts_of_their_own() -> None:
    parts = parts_of(batch([0, 4, 0, 7], [1, 1, 3, 2]))
    assert list(map(plain, parts)) == [
        ([0], [10], 1, False, []),
        ([2, 3, 4], [12], 3, False, []),
        ([5, 6], [13], 2, True, []),
        ([1], [11], 1, True, []),
    ]


def test_a_piece_is_cut_at_copied_states() -> None:
    """The last token of the first prompt is computed with the token of the sequence that decodes."""
    parts = parts_of(batch([4, 0, 5], [1, 4, 6]), copies((1, 3, 20), (2, 7, 21), (2, 9, 22), (2, 11, 23)))
    assert list(map(plain, parts)) == [
        ([1, 2, 3], [11], 3, False, [20]),
        ([5, 6], [12], 2, True, [21]),
        ([7, 8], [12], 2, True, [22]),
        ([9, 10], [12], 2, True, [23]),
        ([0, 4], [10, 11], 1, True, []),
    ]


def test_a_single_token_can_be_copied() -> None:
    parts = parts_of(batch([4, 9], [1, 1]), copies((1, 10, 20)))
    assert list(map(plain, parts)) == [([1], [11], 1, True, [20]), ([0], [10], 1, True, [])]


def test_a_piece_shaped_state_is_no_row() -> None:
    """MiniMax returns its states, too; those of 4 heads look like the output for a piece of 4 tokens."""
    mixer: Any = None
    call = StateCall(mixer, {"hidden_states": torch.zeros(1, 6, 8)})
    parts = [Part(slice(0, 4), 1, 4), Part(slice(4, 6), 1, 2)]
    outputs = [
        (torch.full((1, part.num_tokens, 8), i), torch.zeros(1, 4, 3, 3)) for i, part in enumerate(parts)
    ]
    row, states = call.join(list(zip(parts, outputs, strict=True)))
    assert row[0, :, 0].tolist() == [0, 0, 0, 0, 1, 1]
    assert states is None


def test_parts_have_each_token_once_in_order() -> None:
    rng = random.Random(1)
    for _ in range(200):
        counts = sorted(
            (rng.choice([1, 1, 2, 5, 9]) for _ in range(rng.randrange(1, 6))), key=lambda n: n > 1
        )
        starts = [rng.choice([0, 3, 8]) for _ in counts]
        order = rng.sample(range(10, 10 + len(counts) + rng.choice([0, 3])), len(counts))
        taken = [
            (i, starts[i] + offset, 20 + 10 * i + offset)
            for i, count in enumerate(counts)
            for offset in range(1, count + 1)
            if rng.random() < 0.3
        ]
        given = copies(*taken) if taken else StateCopies()
        computed = dict(enumerate(starts))  # position of each sequence
        found, firsts = [], np.cumsum(counts) - counts
        for places, rows, num_tokens, continues, to in map(
            plain, parts_of(batch(starts, counts, order), given)
        ):
            for number, i in enumerate(map(order.index, rows)):
                own = places[number * num_tokens : (number + 1) * num_tokens]
                first = firsts[i] + computed[i] - starts[i]
                assert own == list(range(first, first + num_tokens))
                assert continues == (computed[i] > 0)
                computed[i] += num_tokens
                found += [(i, computed[i], slot) for slot in to]
        assert computed == {
            i: start + count for i, (start, count) in enumerate(zip(starts, counts, strict=True))
        }
        assert sorted(found) == taken
