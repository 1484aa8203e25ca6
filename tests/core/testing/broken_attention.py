"""Attention backends that each break one promise. Run by test_kits.py; pytest does not collect it by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from llmfw.core.interfaces.attention import AttentionBackend, LayerSpec
from llmfw.core.interfaces.forward_batch import ForwardBatch
from llmfw.core.testing.attention import AttentionBackendTests
from llmfw.plugins.attention_torch.backend import TorchAttention


class OffByOnePage(TorchAttention):
    def plan(self, batch: ForwardBatch) -> None:
        super().plan(replace(batch, page_table=batch.page_table.roll(1, dims=1)))


class IgnoresBatchRows(TorchAttention):
    def plan(self, batch: ForwardBatch) -> None:
        super().plan(replace(batch, rows=torch.arange(len(batch.rows))))


class NonCausal(TorchAttention):
    def plan(self, batch: ForwardBatch) -> None:
        super().plan(batch)
        self._spans = [replace(span, distance=span.distance + 1) for span in self._spans]


class WindowTooLarge(TorchAttention):
    def forward(self, query: Any, key: Any, value: Any, layer: LayerSpec, *rest: Any) -> torch.Tensor:
        if layer.sliding_window:
            layer = replace(layer, sliding_window=layer.sliding_window + 1)
        return super().forward(query, key, value, layer, *rest)


class IgnoresSinks(TorchAttention):
    def forward(self, query: Any, key: Any, value: Any, layer: LayerSpec, *rest: Any) -> torch.Tensor:
        return super().forward(query, key, value, layer, rest[0])


class WritesEverySlot(TorchAttention):
    def forward(self, query: Any, key: Any, value: Any, layer: LayerSpec, *rest: Any) -> torch.Tensor:
        output = super().forward(query, key, value, layer, *rest)
        stored = self.storage.values[layer.index]
        stored[stored == stored.max()] = 0
        return output


class IgnoresKeyScale(TorchAttention):
    def forward(self, query: Any, key: Any, value: Any, layer: LayerSpec, *rest: Any) -> torch.Tensor:
        layer = replace(layer, scale=layer.scale / self.storage.scales(layer.index)[0])
        return super().forward(query, key, value, layer, *rest)


class OverflowsFP8(TorchAttention):
    def forward(self, query: Any, key: Any, value: Any, layer: LayerSpec, *rest: Any) -> torch.Tensor:
        output = super().forward(query, key, value, layer, *rest)
        stored = self.storage.keys[layer.index]
        if stored.dtype != key.dtype:
            numbers = stored.float()
            numbers[numbers.abs() == torch.finfo(stored.dtype).max] = torch.nan
            stored.copy_(numbers)
        return output


class PlansOnce(TorchAttention):
    _planned = False

    def plan(self, batch: ForwardBatch) -> None:
        if not self._planned:
            super().plan(batch)
        self._planned = True


class PlansOnceForEachShape(TorchAttention):
    """Takes two steps of equal lengths for one."""

    _planned: tuple[bytes, bytes] | None = None

    def plan(self, batch: ForwardBatch) -> None:
        shape = (batch.query_lens.tobytes(), batch.kv_lens.tobytes())
        if shape != self._planned:
            super().plan(batch)
        self._planned = shape


class PlansOnceForEachSize(TorchAttention):
    """Keeps the places of the last step of as many sequences."""

    _pages: dict[tuple[int, ...], Any]

    def plan(self, batch: ForwardBatch) -> None:
        self._pages = getattr(self, "_pages", {})
        rows, table = self._pages.setdefault(
            (len(batch.rows), len(batch.slots)), (batch.rows.clone(), batch.page_table.clone())
        )
        super().plan(replace(batch, rows=rows, page_table=table))


class KeepsPagesOfRows(TorchAttention):
    """Reads only those pages of a row that it has not read before."""

    _known: dict[int, tuple[int, torch.Tensor]]

    def plan(self, batch: ForwardBatch) -> None:
        self._known = getattr(self, "_known", {})
        table = batch.page_table.clone()
        for row, length in zip(batch.rows.tolist(), batch.kv_lens.tolist(), strict=True):
            before, pages = self._known.get(row, (0, table[row]))
            if before < length:
                count = -(-before // batch.page_size)
                table[row, :count] = pages[:count]
            self._known[row] = length, table[row].clone()
        super().plan(replace(batch, page_table=table))


class ForgetsTheBeginning(TorchAttention):
    """Reads the last 300 tokens of a sequence only."""

    def forward(self, query: Any, key: Any, value: Any, layer: LayerSpec, *rest: Any) -> torch.Tensor:
        layer = replace(layer, sliding_window=min(layer.sliding_window or 300, 300))
        return super().forward(query, key, value, layer, *rest)


class ReadsTwoThousandTokens(TorchAttention):
    """Reads the last 2,200 tokens of a sequence only, more than other tests' sequences have."""

    def forward(self, query: Any, key: Any, value: Any, layer: LayerSpec, *rest: Any) -> torch.Tensor:
        layer = replace(layer, sliding_window=min(layer.sliding_window or 2200, 2200))
        return super().forward(query, key, value, layer, *rest)


class ComputesThirtyTwoSequences(TorchAttention):
    def forward(self, query: Any, key: Any, value: Any, layer: LayerSpec, *rest: Any) -> torch.Tensor:
        output = super().forward(query, key, value, layer, *rest)
        output[rest[0].query_lens[:32].sum() :] = 0
        return output


class ReadsNeighbors(TorchAttention):
    """Reads one slot of the next sequence, where a length is a multiple of 64."""

    def plan(self, batch: ForwardBatch) -> None:
        super().plan(batch)
        first = batch.page_table[batch.rows.roll(-1), 0] * batch.page_size
        for group in self._groups:
            members = range(batch.num_single) if group.members is None else group.members.tolist()
            slots = group.slots.view(len(members), -1)
            for place, member in enumerate(members):
                if batch.kv_lens[member] % 64 == 0:
                    slots[place, 0] = first[member]


class CapturesLengths(TorchAttention):
    def graph_unsupported(self) -> None:
        return None

    def plan(self, batch: ForwardBatch) -> None:
        if batch.is_static:
            batch = replace(batch, kv_lens=batch.kv_lens.clip(max=8))
        super().plan(batch)


class OfKind(AttentionBackendTests):
    kind: type[AttentionBackend]

    @pytest.fixture
    def backend(self) -> type[AttentionBackend]:
        return self.kind

    @pytest.fixture
    def dtype(self) -> torch.dtype:
        return torch.float32


def test_class(kind: type[AttentionBackend]) -> Any:
    """Return a test class for a backend."""
    return type(f"Test{kind.__name__}", (OfKind,), {"kind": kind})


for _kind in TorchAttention.__subclasses__():
    globals()[f"Test{_kind.__name__}"] = test_class(_kind)
