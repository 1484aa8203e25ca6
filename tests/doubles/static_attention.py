"""An attention backend whose decode steps can be captured, and what captures them without CUDA."""

from __future__ import annotations

from collections.abc import Callable

import torch

from llmfw.core.interfaces.attention import LayerSpec
from llmfw.core.interfaces.forward_batch import ForwardBatch
from llmfw.core.step.graphs import Graph
from llmfw.plugins.attention_torch.backend import TorchAttention


class StaticAttention(TorchAttention):
    """The torch backend, but for static steps: each sequence is padded to the page table's whole width.

    What `forward` reads then is the page table, rows and slots, which stay where they are, and lengths, which `plan`
    writes to where they were.
    """

    def graph_unsupported(self) -> None:
        return None

    def plan(self, batch: ForwardBatch) -> None:
        if not batch.is_static:
            super().plan(batch)
            return
        lengths = torch.from_numpy(batch.kv_lens).to(batch.device)
        self._lengths.setdefault(len(lengths), torch.empty_like(lengths)).copy_(lengths)

    @property
    def _lengths(self) -> dict[int, torch.Tensor]:
        return self.__dict__.setdefault("_lengths_by_size", {})

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        layer: LayerSpec,
        batch: ForwardBatch,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if not batch.is_static:
            return super().forward(query, key, value, layer, batch, sinks)
        keys = self.storage.keys[layer.index].flatten(0, 1)
        values = self.storage.values[layer.index].flatten(0, 1)
        keys.index_copy_(0, batch.slots, key)
        values.index_copy_(0, batch.slots, value)
        offsets = torch.arange(batch.page_size)
        slots = (batch.page_table[batch.rows].long()[:, :, None] * batch.page_size + offsets).flatten(1)
        distance = self._lengths[len(query)][:, None] - 1 - torch.arange(slots.shape[1])  # [B, L]
        shared = layer.num_heads // layer.num_kv_heads
        wide_keys, wide_values = (x[slots].repeat_interleave(shared, dim=2) for x in (keys, values))
        scores = torch.einsum("bhd,blhd->bhl", query, wide_keys) * layer.scale
        if layer.softcap:
            scores = layer.softcap * torch.tanh(scores / layer.softcap)
        hidden = (distance < 0) | (distance >= (layer.sliding_window or slots.shape[1]))
        scores = scores.masked_fill(hidden[:, None], -torch.inf)
        if sinks is not None:
            scores = torch.cat([scores, sinks[None, :, None].expand(len(query), -1, 1)], dim=-1)
        weights = torch.softmax(scores, dim=-1)[..., : slots.shape[1]]
        return torch.einsum("bhl,blhd->bhd", weights, wide_values)


class Rerun(Graph):
    """Calls the captured function again: it finds the tensors and the batch of the capture, as a graph would.

    Args:
        replayed: gets a 1 for each replay.
    """

    def __init__(self, replayed: list[int]) -> None:
        self._replayed = replayed

    def capture(self, function: Callable[[], None]) -> None:
        function()
        self._function = function

    def replay(self) -> None:
        self._replayed.append(1)
        self._function()
