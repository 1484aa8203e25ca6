"""The parts that the ranks keep of a tensor make up the tensor, and no head is divided."""

from __future__ import annotations

import pytest
import torch

from llmfw.core.model.parallel.cut import Cut


@pytest.mark.parametrize(("dim", "num_packed"), [(-2, 1), (-1, 1), (-2, 2), (-1, 3)])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_parts_of_all_ranks_are_the_whole(dim: int, num_packed: int, size: int) -> None:
    whole = torch.arange(3 * 12 * 18).view(3, 12, 18)
    parts = [Cut(dim, rank, size, num_packed).of(whole) for rank in range(size)]
    assert all(list(part.shape) == Cut(dim, 0, size, num_packed).shape_of(whole.shape) for part in parts)
    # Each rank has its share of each packed tensor, in their order.
    chunks = [part.chunk(num_packed, dim) for part in parts]
    joined = torch.cat([torch.cat([chunk[i] for chunk in chunks], dim) for i in range(num_packed)], dim)
    assert torch.equal(joined, whole)


def test_a_part_shares_no_memory_with_the_whole() -> None:
    whole = torch.zeros(4, 4)
    part = Cut(-2, 0, 2).of(whole)
    part += 1
    assert part.is_contiguous()
    assert not whole.any()


@pytest.mark.parametrize(
    ("heads", "size", "expected"),
    [
        (4, 2, [(0, 16), (16, 32)]),
        (2, 4, [(0, 16), (0, 16), (16, 32), (16, 32)]),
        (1, 2, [(0, 32), (0, 32)]),
        (2, 3, None),
        (3, 2, None),
    ],
)
def test_ranks_share_heads_that_are_too_few(
    heads: int, size: int, expected: list[tuple[int, int]] | None
) -> None:
    found = [Cut(-2, rank, size, num_units=heads).range_of(32) for rank in range(size)]
    assert found == (expected or [None] * size)


def test_uneven_tensors_are_not_cut() -> None:
    assert Cut(-2, 0, 2).ranges([3, 4]) is None
    assert Cut(-2, 0, 2).ranges([4]) is None  # a vector has no such dimension
    assert Cut(-2, 0, 2, num_packed=2).ranges([5, 4]) is None
