"""Each row gets what its own adapter adds, and rows without one are not touched."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from llmfw.core.model.adapters.adapted_linear import AdaptedLinear, CurrentRows
from llmfw.core.model.adapters.low_rank import LowRank
from llmfw.core.model.adapters.row_groups import RowGroups
from llmfw.core.step.device.staging import Staging

IN, SIZES, SLOTS, MAX_RANK = 6, (5, 3), 5, 4
SENDER = Staging(torch.device("cpu"))
SEQUENCES = st.lists(st.tuples(st.integers(-1, SLOTS - 1), st.integers(1, 6)), min_size=1, max_size=8)


def low_rank(rank: int, size: int, seed: int) -> LowRank:
    generator = torch.Generator().manual_seed(seed)
    down, up = (torch.randn(rank, width, generator=generator).double() for width in (IN, size))
    return LowRank(down, up)


def adapted() -> tuple[AdaptedLinear, list[dict[int, LowRank]], CurrentRows]:
    """Return a layer of two merged projections, what each slot adds to each, and the rows that it reads.

    Slot 3 adds nothing to this layer, and others leave out a projection.
    """
    torch.manual_seed(0)
    current = CurrentRows()
    base = nn.Linear(IN, sum(SIZES)).double()
    layer = AdaptedLinear(base, SIZES, SLOTS, MAX_RANK, torch.empty(0, dtype=torch.float64), current)
    slots = [
        {part: low_rank(1 + (slot + part) % MAX_RANK, SIZES[part], 10 * slot + part) for part in parts}
        for slot, parts in enumerate(((0, 1), (0,), (1,), (), (0, 1)))
    ]
    for slot, parts in enumerate(slots):
        layer.write(slot, parts)
    return layer, slots, current


def expected(
    layer: AdaptedLinear, slots: list[dict[int, LowRank]], hidden: torch.Tensor, of_rows: list[int]
) -> torch.Tensor:
    output: torch.Tensor = layer.base(hidden)
    for row, slot in enumerate(of_rows):
        first = 0
        for part, size in enumerate(SIZES):
            if slot >= 0 and part in slots[slot]:
                added = hidden[0, row] @ slots[slot][part].down.T @ slots[slot][part].up
                output[0, row, first : first + size] += added
            first += size
    return output


def groups_of(sequences: list[tuple[int, int]]) -> RowGroups | None:
    adapters, counts = (np.array(column, dtype=np.int64) for column in zip(*sequences, strict=True))
    return RowGroups.of(adapters, counts, SENDER) if (adapters >= 0).any() else None


@given(sequences=SEQUENCES)
@torch.inference_mode()
def test_rows_get_their_own_adapter(sequences: list[tuple[int, int]]) -> None:
    layer, slots, current = adapted()
    of_rows = [slot for slot, count in sequences for _ in range(count)]
    hidden = torch.randn(1, len(of_rows), IN, dtype=torch.float64)
    current.groups = groups_of(sequences)
    found, alone = layer(hidden), layer.base(hidden)
    assert torch.allclose(found, expected(layer, slots, hidden, of_rows), atol=1e-12)
    without = torch.tensor([slot < 0 for slot in of_rows])
    assert torch.equal(found[0, without], alone[0, without])


@pytest.mark.parametrize("slots", [(0, 1), (0, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4)], ids=["batched", "one by one"])
@torch.inference_mode()
def test_an_overflowing_adapter_spoils_its_rows_only(slots: tuple[int, ...]) -> None:
    layer, parts, current = adapted()
    huge = torch.full((1, max(IN, *SIZES)), 1e308, dtype=torch.float64)
    layer.write(0, {0: LowRank(huge[:, :IN], huge[:, : SIZES[0]])})
    hidden = torch.ones(1, len(slots) + 1, IN, dtype=torch.float64)
    current.groups = groups_of([*((slot, 1) for slot in slots), (-1, 1)])
    assert (current.groups.batched is not None) == (len(slots) == 2)
    found = layer(hidden)
    assert not found[0, 0].isfinite().all()
    assert torch.allclose(found[0, 1:], expected(layer, parts, hidden, [-1, *slots[1:], -1])[0, 1:])


@torch.inference_mode()
def test_a_rewritten_slot_keeps_nothing() -> None:
    layer, slots, current = adapted()
    layer.write(0, slots[2])
    layer.write(1, {})
    current.groups = groups_of([(0, 2), (1, 3)])
    hidden = torch.randn(1, 5, IN, dtype=torch.float64)
    assert torch.allclose(layer(hidden), expected(layer, slots, hidden, [2, 2, 3, 3, 3]), atol=1e-12)
