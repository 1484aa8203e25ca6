"""The part of a tensor that one rank keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Cut:
    """The part of a tensor that one rank keeps, along one dimension.

    Attributes:
        dim: dimension that is cut, from the end: -1 is the last one.
        rank, size: number of the rank, and of the ranks.
        num_packed: number of equal tensors that are stored one after another, each of which is cut.
        num_units: number of units that are not divided, such as heads; 0: any division is allowed. If there
            are fewer units than ranks, several ranks keep the same unit.
    """

    dim: int
    rank: int
    size: int
    num_packed: int = 1
    num_units: int = 0

    def range_of(self, length: int) -> tuple[int, int] | None:
        """Return the first and the last index plus 1 of this rank, in one packed tensor; None: it cannot be cut."""
        units = self.num_units or length
        if length % units:
            return None
        unit = length // units
        if units % self.size == 0:
            share = units // self.size * unit
            return self.rank * share, (self.rank + 1) * share
        if self.num_units and self.size % units == 0:
            first = self.rank * units // self.size * unit
            return first, first + unit
        return None

    def ranges(self, shape: Sequence[int]) -> list[tuple[int, int]] | None:
        """Return the ranges that this rank keeps of a tensor of this shape; None: it cannot be cut."""
        if len(shape) < -self.dim or shape[self.dim] % self.num_packed:
            return None
        length = shape[self.dim] // self.num_packed
        found = self.range_of(length)
        if found is None:
            return None
        return [(i * length + found[0], i * length + found[1]) for i in range(self.num_packed)]

    def shape_of(self, shape: Sequence[int]) -> list[int]:
        """Return the shape of the part of a tensor that can be cut."""
        ranges = self.ranges(shape)
        assert ranges is not None
        kept = list(shape)
        kept[self.dim] = sum(stop - start for start, stop in ranges)
        return kept

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of this rank's part of a tensor that can be cut. Reads no other part of a mapped file."""
        ranges = self.ranges(tensor.shape)
        assert ranges is not None
        parts = [tensor.narrow(self.dim, start, stop - start) for start, stop in ranges]
        return (
            torch.cat(parts, dim=self.dim)
            if len(parts) > 1
            else parts[0].clone(memory_format=torch.contiguous_format)
        )
