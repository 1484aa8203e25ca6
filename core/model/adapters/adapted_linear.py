"""A linear layer with adapters. Each adapter adds its output to the rows of its own sequences.

The base's product runs unchanged, on all rows. Rows without an adapter are not written to, so their results
equal the base's results bit for bit.

             slot 0    slot 1    slot 2
    down   [ rank × parts × in_features | ...         ]   one stack: an adapter's rows are together
    up     [ rank × out_features | ...                ]   a stack for each merged projection
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from .low_rank import LowRank
from .row_groups import Batched, RowGroups


class CurrentRows:
    """The rows of the running step that belong to adapters. A model's adapted layers share one object.

    Attributes:
        groups: the rows; None: no row belongs to an adapter.
    """

    def __init__(self) -> None:
        self.groups: RowGroups | None = None


class AdaptedLinear(nn.Module):
    """A linear layer with room for adapters.

    Args:
        base: the layer itself; any module that maps [..., in_features] to a new tensor [..., out_features].
        sizes: number of outputs of each projection that is merged in the layer; one number for an unmerged layer.
        num_slots: number of adapters that fit into the layer at once.
        max_rank: highest rank of an adapter.
        like: tensor with the device and dtype of the hidden states.
        current: the running step's rows.
    """

    down: torch.Tensor

    def __init__(
        self,
        base: nn.Module,
        sizes: Sequence[int],
        num_slots: int,
        max_rank: int,
        like: torch.Tensor,
        current: CurrentRows,
    ) -> None:
        super().__init__()
        self.base = base
        self.sizes = tuple(sizes)
        self.in_features, self.out_features = int(base.in_features), sum(sizes)  # type: ignore[arg-type]
        self.max_rank = max_rank
        self._current = current
        self._ranks = [0] * num_slots
        length = num_slots * max_rank
        down = like.new_zeros((length * len(self.sizes), self.in_features))
        self.register_buffer("down", down, persistent=False)
        for part, size in enumerate(self.sizes):
            self.register_buffer(f"up_{part}", like.new_zeros((length, size)), persistent=False)

    @property
    def weight(self) -> torch.Tensor:
        """The base's weight, [out_features, in_features]."""
        weight = self.base.weight
        assert isinstance(weight, torch.Tensor)
        return weight

    @property
    def bias(self) -> torch.Tensor | None:
        """The base's bias, [out_features], or None."""
        bias = self.base.bias
        assert bias is None or isinstance(bias, torch.Tensor)
        return bias

    @property
    def num_bytes(self) -> int:
        """Size of the room for adapters in bytes."""
        return sum(buffer.nbytes for buffer in self.buffers(recurse=False))

    def write(self, slot: int, parts: Mapping[int, LowRank]) -> None:
        """Replace the weights in a slot with an adapter's weights.

        Args:
            parts: index of each adapted projection → the adapter's matrices for it; empty: the slot adds
                nothing.
        """
        first, last = slot * self.max_rank, (slot + 1) * self.max_rank
        rank = max((each.rank for each in parts.values()), default=0)
        self._ranks[slot] = rank
        downs = self.down.view(-1, len(self.sizes), self.in_features)[first:last].zero_()
        for part in range(len(self.sizes)):
            up = self._up(part)[first:last].zero_()
            if (found := parts.get(part)) is not None:
                downs[: found.rank, part].copy_(found.down)
                up[: found.rank].copy_(found.up)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the layer's output, [..., out_features], for `hidden`, [..., in_features]."""
        output: torch.Tensor = self.base(hidden)
        groups = self._current.groups
        if groups is None or not any(self._ranks[slot] for slot in groups.slots):
            return output
        output = output.contiguous()  # copies only a transposed output
        rows, results = hidden.reshape(-1, self.in_features), output.view(-1, self.out_features)
        assert len(rows) == groups.num_rows, "an adapted layer is computed for some rows only"
        if groups.batched is not None:
            self._add_batched(rows, results, groups.batched)
        for slot, indices in zip(groups.slots, groups.of_slots, strict=False):
            self._add(rows, results, slot, indices)
        return output

    def _add(
        self, rows: torch.Tensor, results: torch.Tensor, slot: int, indices: torch.Tensor | None
    ) -> None:
        """Add the output of one slot's adapter to the slot's rows.

        Args:
            indices: the rows; None: all.
        """
        if not (rank := self._ranks[slot]):
            return
        first = slot * self.max_rank
        rows = rows if indices is None else rows.index_select(0, indices)
        parts = len(self.sizes)
        low = (rows @ self.down[first * parts : (first + rank) * parts].T).view(len(rows), rank, parts)
        raised = [low[:, :, part] @ self._up(part)[first : first + rank] for part in range(parts)]
        if indices is None:
            results.add_(_joined(raised))
        else:
            results.index_add_(0, indices, _joined(raised))

    def _add_batched(self, rows: torch.Tensor, results: torch.Tensor, batched: Batched) -> None:
        """Add the outputs of several slots' adapters, in one batched product."""
        first, last, parts = batched.first, batched.last, len(self.sizes)
        hidden = rows[batched.padded]
        downs = self.down.view(-1, self.max_rank * parts, self.in_features)[first:last]
        low = torch.bmm(hidden, downs.transpose(1, 2)).view(*hidden.shape[:2], self.max_rank, parts)
        raised = [
            torch.bmm(low[..., part], self._up(part).view(-1, self.max_rank, size)[first:last])
            for part, size in enumerate(self.sizes)
        ]
        added = _joined(raised).view(-1, self.out_features).index_select(0, batched.places)
        results.index_add_(0, batched.rows, added)

    def _up(self, part: int) -> torch.Tensor:
        up = self._buffers[f"up_{part}"]
        assert up is not None
        return up

    def extra_repr(self) -> str:
        """Return the text that torch shows with the class name."""
        return f"{len(self._ranks)} slots of rank {self.max_rank}"


def _joined(raised: Sequence[torch.Tensor]) -> torch.Tensor:
    return raised[0] if len(raised) == 1 else torch.cat([*raised], dim=-1)
