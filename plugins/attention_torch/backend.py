"""The reference attention backend: pages are gathered, then attended to by torch's own operators.

Sequences with one new token (decode) are gathered together, in groups of similar length, padded to the longest;
prompts one by one, in blocks of queries so that a mask stays small. Query heads that share a key head are folded
into the query dimension or broadcast, so keys are never repeated in memory. It does whatever `LayerSpec` can say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from llmfw.core.attention import AttentionBackend, LayerSpec
from llmfw.core.engine.batch import ForwardBatch

MAX_MASK_ELEMENTS = 4_000_000
MAX_PADDING = 1.5
SMALL_GATHER = 4096


@dataclass(frozen=True, slots=True)
class Group:
    """Sequences with one new token, of similar length: attended to together.

    Attributes:
        members: which tokens of the batch these are, [G]; None: the first G.
        slots: where the keys are, padded to the longest: [G * L].
        distance: how far back each slot is from the newest token, 0 for itself, negative beyond the end: [G, L].
    """

    members: torch.Tensor | None
    slots: torch.Tensor
    distance: torch.Tensor


@dataclass(frozen=True, slots=True)
class Span:
    """A block of one sequence's new tokens.

    Attributes:
        tokens: which tokens of the batch.
        slots: where the keys are, up to the block's last token: [L].
        start: position of the block's first token.
    """

    tokens: slice
    slots: torch.Tensor
    start: int


class TorchAttention(AttentionBackend):
    """Attention over gathered pages."""

    _groups: list[Group]
    _spans: list[Span]

    @classmethod
    def unsupported(cls, layers: Sequence[LayerSpec], device: str, dtype: torch.dtype) -> str | None:
        """Return None: torch's operators do it all, everywhere."""
        return None

    def plan(self, batch: ForwardBatch) -> None:
        """Find the slots of every sequence once, for all layers."""
        self._masks: dict[tuple[str, int, int | None], torch.Tensor | None] = {}
        self._groups = [
            _make_group(batch, members) for members in _similar_lengths(batch.kv_lens[: batch.num_single])
        ]
        self._spans = _make_spans(batch)

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        layer: LayerSpec,
        batch: ForwardBatch,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Write keys and values, then attend group by group and span by span."""
        keys = self.storage.keys[layer.index].view(-1, layer.num_kv_heads, layer.head_dim)  # [slots, Hkv, D]
        values = self.storage.values[layer.index].view(-1, layer.num_kv_heads, layer.v_head_dim)
        keys.index_copy_(0, batch.slots, key)
        values.index_copy_(0, batch.slots, value)
        output = query.new_empty((len(query), layer.num_heads, layer.v_head_dim))
        for number, group in enumerate(self._groups):
            mask = self._group_mask(number, group, layer.sliding_window)
            self._attend_group(group, mask, query, keys, values, layer, sinks, output)
        for number, span in enumerate(self._spans):
            mask = self._span_mask(number, span, layer.sliding_window)
            self._attend_span(span, mask, query, keys, values, layer, sinks, output)
        return output

    def _attend_group(
        self,
        group: Group,
        mask: torch.Tensor | None,  # [G, 1, 1, L]
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        layer: LayerSpec,
        sinks: torch.Tensor | None,
        output: torch.Tensor,
    ) -> None:
        size = len(group.distance)
        new = query[:size] if group.members is None else query[group.members]
        # One key head serves `num_heads / num_kv_heads` query heads: they are its queries here.
        grouped = new.view(size, layer.num_kv_heads, -1, layer.head_dim)  # [G, Hkv, H/Hkv, D]
        k = (
            keys.index_select(0, group.slots).view(size, -1, *keys.shape[1:]).transpose(1, 2)
        )  # [G, Hkv, L, D]
        v = values.index_select(0, group.slots).view(size, -1, *values.shape[1:]).transpose(1, 2)
        if sinks is not None:
            sinks = sinks.view(1, layer.num_kv_heads, -1, 1)
        attended = _attend(grouped, k, v, mask, layer, sinks)
        attended = attended.reshape(size, layer.num_heads, layer.v_head_dim)
        if group.members is None:
            output[:size] = attended
        else:
            output[group.members] = attended

    def _attend_span(
        self,
        span: Span,
        mask: torch.Tensor | None,  # [t, L]; None: causal from the first token on
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        layer: LayerSpec,
        sinks: torch.Tensor | None,
        output: torch.Tensor,
    ) -> None:
        new = query[span.tokens]
        # Key heads stand in the batch dimension, the query heads that share one in the head dimension.
        grouped = new.view(len(new), layer.num_kv_heads, -1, layer.head_dim).permute(
            1, 2, 0, 3
        )  # [Hkv, H/Hkv, t, D]
        num_shared = grouped.shape[1]
        k = keys.index_select(0, span.slots).transpose(0, 1).unsqueeze(1).expand(-1, num_shared, -1, -1)
        v = values.index_select(0, span.slots).transpose(0, 1).unsqueeze(1).expand(-1, num_shared, -1, -1)
        if sinks is not None:
            sinks = sinks.view(layer.num_kv_heads, num_shared, 1, 1)
        attended = _attend(grouped, k, v, mask, layer, sinks, is_causal=mask is None)
        output[span.tokens] = attended.permute(2, 0, 1, 3).reshape(
            len(new), layer.num_heads, layer.v_head_dim
        )

    def _group_mask(self, number: int, group: Group, window: int | None) -> torch.Tensor | None:
        name = ("group", number, window)
        if name not in self._masks:
            seen = _within(group.distance, window)
            self._masks[name] = None if bool(seen.all()) else seen[:, None, None, :]
        return self._masks[name]

    def _span_mask(self, number: int, span: Span, window: int | None) -> torch.Tensor | None:
        name = ("span", number, window)
        if name not in self._masks:
            length = len(span.slots)
            if span.start == 0 and (window is None or length <= window):
                self._masks[name] = None
            else:
                places = torch.arange(length, device=span.slots.device)
                self._masks[name] = _within(places[span.start :, None] - places[None, :], window)
        return self._masks[name]


def _within(distance: torch.Tensor, window: int | None) -> torch.Tensor:
    """Return which distances back are attended to."""
    seen = distance >= 0
    return seen if window is None else seen & (distance < window)


def _attend(
    query: torch.Tensor,  # [b, h, q, D]
    key: torch.Tensor,  # [b, h, L, D]
    value: torch.Tensor,  # [b, h, L, Dv]
    mask: torch.Tensor | None,  # broadcast to [b, h, q, L]
    layer: LayerSpec,
    sinks: torch.Tensor | None,  # broadcast to [b, h, q, 1]
    is_causal: bool = False,
) -> torch.Tensor:
    """Return softmax(query·key) value, [b, h, q, Dv]."""
    if layer.softcap is None and sinks is None:
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=is_causal, scale=layer.scale
        )
    scores = (query @ key.transpose(-1, -2)).float() * layer.scale
    if layer.softcap is not None:
        scores = layer.softcap * torch.tanh(scores / layer.softcap)
    if is_causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    if sinks is not None:
        scores = torch.cat([scores, sinks.float().expand(*scores.shape[:-1], 1)], dim=-1)
    weights = torch.softmax(scores, dim=-1)
    if sinks is not None:
        weights = weights[..., :-1]
    return weights.to(value.dtype) @ value


def _similar_lengths(lengths: np.ndarray) -> list[np.ndarray | None]:
    """Cut sequences into groups in which padding costs little. None stands for all, in order."""
    total, count = int(lengths.sum()), len(lengths)
    if count == 0:
        return []
    if count * int(lengths.max()) <= max(MAX_PADDING * total, SMALL_GATHER):
        return [None]
    groups: list[np.ndarray | None] = []
    order = np.argsort(-lengths, kind="stable")
    begin, held = 0, 0
    for i, member in enumerate(order):
        held += int(lengths[member])
        if (i + 1 - begin) * int(lengths[order[begin]]) > max(MAX_PADDING * held, SMALL_GATHER):
            groups.append(order[begin:i])
            begin, held = i, int(lengths[member])
    groups.append(order[begin:])
    return groups


def _make_group(batch: ForwardBatch, members: np.ndarray | None) -> Group:
    device = batch.device
    chosen = np.arange(batch.num_single) if members is None else members
    lengths = torch.from_numpy(batch.kv_lens[chosen]).to(device)
    longest = int(batch.kv_lens[chosen].max())
    index = None if members is None else torch.from_numpy(members).to(device)
    table = batch.page_table[: batch.num_single] if index is None else batch.page_table[index]
    slots = _slots(table, longest, batch.page_size)
    distance = (lengths - 1)[:, None] - torch.arange(longest, device=device)[None, :]
    return Group(index, slots.reshape(-1), distance)


def _make_spans(batch: ForwardBatch) -> list[Span]:
    spans = []
    first = batch.num_single
    for i in range(batch.num_single, len(batch.query_lens)):
        count, length = int(batch.query_lens[i]), int(batch.kv_lens[i])
        slots = _slots(batch.page_table[i : i + 1], length, batch.page_size)[0]
        size = max(1, MAX_MASK_ELEMENTS // length)
        for offset in range(0, count, size):
            end = min(offset + size, count)
            start = length - count + offset
            spans.append(Span(slice(first + offset, first + end), slots[: length - count + end], start))
        first += count
    return spans


def _slots(table: torch.Tensor, length: int, page_size: int) -> torch.Tensor:
    """Return the slots of the first `length` tokens of each row: [rows, length]."""
    pages = table[:, : -(-length // page_size)].long()
    if page_size == 1:
        return pages
    offsets = torch.arange(page_size, device=table.device)
    return (pages[:, :, None] * page_size + offsets).reshape(len(table), -1)[:, :length]
