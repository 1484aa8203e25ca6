"""The reference attention backend: gathers pages, then attends with torch's own operators.

The backend computes sequences with one new token (decode) in groups of similar length, padded to the longest.
It computes prompts one by one, in blocks of queries, to keep masks small. Query heads that share a KV head
are folded into the query dimension or broadcast, so keys are never repeated in memory. Every `LayerSpec` is
supported.

A token's result does not depend on the rest of the batch (batch invariance). torch's kernels choose the order
of their sums by the shapes of their inputs, so the backend rounds all shapes up, queries to 8 rows and keys
to 64, and masks the padding. With torch 2.13 on x86, a token's result is bitwise equal whether its sequence
is computed alone, in a batch, or chunked anywhere; a test checks this. On other devices, the last bits may
differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.nn import functional

from llmfw.core import AttentionBackend, ForwardBatch, LayerSpec
from llmfw.core.interfaces.kv_dtype import as_bytes, decode

QUERY_BLOCK = 8
KEY_BLOCK = 64
MAX_MASK_ELEMENTS = 4_000_000
MAX_PADDING = 1.5
SMALL_GATHER = 4096


@dataclass(frozen=True, slots=True)
class Group:
    """Decoding sequences of similar length, which are computed together.

    Attributes:
        members: index of each sequence's token in the batch: [G]. None: the first G tokens.
        slots: slots of the keys: [G * L]. L is the length of the longest sequence, rounded up. Shorter
            sequences are padded with their first slot.
        distance: number of tokens from each slot's token to the sequence's newest token: [G, L]. It is 0 for
            the newest token, and negative for padding.
    """

    members: torch.Tensor | None
    slots: torch.Tensor
    distance: torch.Tensor


@dataclass(frozen=True, slots=True)
class Span:
    """A block of one sequence's new tokens.

    Attributes:
        tokens: slice of the batch's tokens that the block covers.
        slots: slots of the keys up to the block's last token: [L]. Their number is padded to a multiple of
            KEY_BLOCK.
        distance: number of tokens from each slot's token to each of the block's tokens: [t, L]. The number of
            tokens t is padded to a multiple of QUERY_BLOCK. Keys after a token have a negative distance.
        nearest: least distance of a key that each token attends to: [t, 1]; 0, or less if it looks ahead.
    """

    tokens: slice
    slots: torch.Tensor
    distance: torch.Tensor
    nearest: torch.Tensor | int = 0


class TorchAttention(AttentionBackend):
    """Attention by torch's operators over gathered pages."""

    looks_ahead = True
    heeds_selection = True
    _groups: list[Group]
    _spans: list[Span]
    _masks: dict[tuple[int, int | None], torch.Tensor]

    @classmethod
    def unsupported(cls, layers: Sequence[LayerSpec], device: str, dtype: torch.dtype) -> str | None:
        """Return None: torch's operators support all layers on all devices."""
        return None

    @classmethod
    def storage_unsupported(cls, device: str, dtype: torch.dtype, stored_as: torch.dtype) -> str | None:
        """Return None: the backend converts the keys and values that it gathers."""
        return None

    def plan(self, batch: ForwardBatch) -> None:
        """Find the slots of every sequence once, for all layers."""
        self._masks = {}
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
        self.storage.write(layer.index, batch.slots, key, value)
        keys = self.storage.keys[layer.index].view(-1, layer.num_kv_heads, layer.head_dim)  # [slots, Hkv, D]
        values = self.storage.values[layer.index].view(-1, layer.num_kv_heads, layer.v_head_dim)
        key_scale, value_scale = self.storage.scales(layer.index)
        if key_scale != 1.0:
            layer = replace(layer, scale=layer.scale * key_scale)
        output = query.new_empty((len(query), layer.num_heads, layer.v_head_dim))
        for group in self._groups:
            tokens = slice(0, len(group.distance)) if group.members is None else group.members
            mask = self._mask(group, layer.sliding_window, _of(batch.selected, tokens))
            output[tokens] = self._attend_group(group, query[tokens], keys, values, layer, sinks, mask)
        for span in self._spans:
            mask = self._mask(span, layer.sliding_window, _of(batch.selected, span.tokens))
            output[span.tokens] = self._attend_span(
                span, query[span.tokens], keys, values, layer, sinks, mask
            )
        return output if value_scale == 1.0 else output.mul_(value_scale)

    def _attend_group(
        self,
        group: Group,
        query: torch.Tensor,  # [G, H, D]
        keys: torch.Tensor,
        values: torch.Tensor,
        layer: LayerSpec,
        sinks: torch.Tensor | None,
        mask: torch.Tensor,  # [G, L]
    ) -> torch.Tensor:
        """Return a group's output: [G, H, Dv].

        The query heads of a KV head are folded into the query dimension.
        """
        size, num_shared = len(query), layer.num_heads // layer.num_kv_heads
        grouped = _pad_rows(
            query.view(size, layer.num_kv_heads, num_shared, layer.head_dim)
        )  # [G, Hkv, q, D]
        k, v = (
            _gather(pages, group.slots, query.dtype).view(size, -1, *pages.shape[1:]).transpose(1, 2)
            for pages in (keys, values)
        )  # [G, Hkv, L, D]
        if sinks is not None:
            sinks = _pad_rows(sinks.view(1, layer.num_kv_heads, num_shared, 1))
        attended = _attend(grouped, k, v, mask[:, None, None, :], layer, sinks)[:, :, :num_shared]
        return attended.reshape(size, layer.num_heads, layer.v_head_dim)

    def _attend_span(
        self,
        span: Span,
        query: torch.Tensor,  # [t, H, D], before it is padded
        keys: torch.Tensor,
        values: torch.Tensor,
        layer: LayerSpec,
        sinks: torch.Tensor | None,
        mask: torch.Tensor,  # [t, L], after the tokens are padded
    ) -> torch.Tensor:
        """Return a span's output: [t, H, Dv].

        Dimension 0 is the KV heads; dimension 1 is the query heads of each KV head.
        """
        size, num_shared = len(query), layer.num_heads // layer.num_kv_heads
        grouped = query.view(size, layer.num_kv_heads, num_shared, layer.head_dim).permute(1, 2, 0, 3)
        k, v = (
            _gather(pages, span.slots, query.dtype)
            .transpose(0, 1)
            .unsqueeze(1)
            .expand(-1, num_shared, -1, -1)
            for pages in (keys, values)
        )
        if sinks is not None:
            sinks = sinks.view(layer.num_kv_heads, num_shared, 1, 1)
        attended = _attend(_pad_rows(grouped), k, v, mask, layer, sinks)[:, :, :size]  # [Hkv, H/Hkv, t, Dv]
        return attended.permute(2, 0, 1, 3).reshape(size, layer.num_heads, layer.v_head_dim)

    def _mask(
        self, part: Group | Span, window: int | None, selected: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return a mask with the shape of `part.distance`: True for visible keys.

        Layers with the same window share a mask, unless they select.

        Args:
            selected: positions that each token selects: [t, K]; None: all.
        """
        if selected is not None:
            return self._mask(part, window) & _chosen(selected, part.distance)
        name = (id(part), window)
        if name not in self._masks:
            seen = part.distance >= (part.nearest if isinstance(part, Span) else 0)
            self._masks[name] = seen if window is None else seen & (part.distance < window)
        return self._masks[name]


def _of(selected: torch.Tensor | None, tokens: torch.Tensor | slice) -> torch.Tensor | None:
    """Return what some tokens select; None if they attend to all."""
    return None if selected is None else selected[tokens]


def _chosen(selected: torch.Tensor, distance: torch.Tensor) -> torch.Tensor:
    """Return which keys each token selects, with the shape of `distance`, [t or more, L]; padding selects all.

    Positions that are not among the keys are ignored.
    """
    num_keys = distance.shape[1]
    is_place = (selected >= 0) & (selected < num_keys)
    chosen = torch.zeros((len(selected), num_keys + 1), dtype=torch.bool, device=selected.device)
    chosen.scatter_(1, torch.where(is_place, selected, num_keys).long(), value=True)
    missing = len(distance) - len(selected)
    return functional.pad(chosen[:, :num_keys], (0, 0, 0, missing), value=True)


def _gather(pages: torch.Tensor, slots: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the keys or values at these slots, converted to `dtype` but not scaled: [slots, Hkv, …]."""
    return decode(as_bytes(pages).index_select(0, slots).view(pages.dtype), dtype)


def _attend(
    query: torch.Tensor,  # [b, h, q, D]
    key: torch.Tensor,  # [b, h, L, D]
    value: torch.Tensor,  # [b, h, L, Dv]
    mask: torch.Tensor,  # broadcast to [b, h, q, L]
    layer: LayerSpec,
    sinks: torch.Tensor | None,  # broadcast to [b, h, q, 1]
) -> torch.Tensor:
    """Return softmax(query·key)·value, with scale, soft cap, mask and sinks applied: [b, h, q, Dv]."""
    if layer.softcap is None and sinks is None:
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=layer.scale)
    # bfloat16 would round scores by up to 1/256 of their size, which changes the weights noticeably.
    scores = query.float() @ key.float().transpose(-1, -2) * layer.scale
    if layer.softcap is not None:
        scores = layer.softcap * torch.tanh(scores / layer.softcap)
    scores = scores.masked_fill(~mask, float("-inf"))
    if sinks is not None:
        scores = torch.cat([scores, sinks.float().expand(*scores.shape[:-1], 1)], dim=-1)
    weights = torch.softmax(scores, dim=-1)
    if sinks is not None:
        weights = weights[..., :-1]
    return weights.to(value.dtype) @ value


def _similar_lengths(lengths: np.ndarray) -> list[np.ndarray | None]:
    """Split sequences by length into groups with little padding.

    A group is an array of indices. None stands for the group of all sequences, in order.
    """
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
    index = None if members is None else torch.from_numpy(members).to(device)
    rows = batch.rows[: batch.num_single] if index is None else batch.rows[index]
    slots = _slots(batch, rows, int(batch.kv_lens[chosen].max()))
    distance = (lengths - 1)[:, None] - torch.arange(slots.shape[1], device=device)[None, :]
    # Beyond a sequence's end, its row may name pages of other sequences. These may hold NaN, which no mask
    # hides.
    slots = torch.where(distance >= 0, slots, slots[:, :1])
    return Group(index, slots.reshape(-1), distance)


def _make_spans(batch: ForwardBatch) -> list[Span]:
    spans = []
    first = batch.num_single
    for i in range(batch.num_single, len(batch.query_lens)):
        count, length = int(batch.query_lens[i]), int(batch.kv_lens[i])
        size = max(QUERY_BLOCK, MAX_MASK_ELEMENTS // length // QUERY_BLOCK * QUERY_BLOCK)
        for offset in range(0, count, size):
            end = min(offset + size, count)
            start = length - count + offset
            tokens = slice(first + offset, first + end)
            ends = None if batch.ends is None else batch.ends[tokens]
            seen = length - count + end if ends is None else int(ends.max())
            slots = _slots(batch, batch.rows[i : i + 1], seen)[0]
            places = torch.arange(start, start + _round_up(end - offset, QUERY_BLOCK), device=batch.device)
            distance = places[:, None] - torch.arange(len(slots), device=batch.device)[None, :]
            nearest = 0 if ends is None else _nearest(ends - np.arange(start, start + len(ends)), places)
            spans.append(Span(tokens, slots, distance, nearest))
        first += count
    return spans


def _nearest(ahead: np.ndarray, places: torch.Tensor) -> torch.Tensor:
    """Return `Span.nearest`, [t, 1], from the number of tokens from each token on that it attends to."""
    nearest = torch.zeros_like(places)
    nearest[: len(ahead)] = torch.from_numpy(1 - ahead)
    return nearest[:, None]


def _slots(batch: ForwardBatch, rows: torch.Tensor, length: int) -> torch.Tensor:
    """Return the slots of each row's first `length` tokens, padded by the first one: [rows, length rounded up]."""
    page_size = batch.page_size
    slots = batch.page_table[:, : -(-length // page_size)].index_select(0, rows).long()
    if page_size > 1:
        offsets = torch.arange(page_size, device=batch.device)
        slots = (slots[:, :, None] * page_size + offsets).reshape(len(rows), -1)[:, :length]
    padding = slots[:, :1].expand(-1, _round_up(length, KEY_BLOCK) - length)
    return torch.cat([slots, padding], dim=1)


def _pad_rows(rows: torch.Tensor) -> torch.Tensor:
    """Pad [..., q, D] with rows of zeros to a multiple of `QUERY_BLOCK` rows."""
    missing = -rows.shape[-2] % QUERY_BLOCK
    return functional.pad(rows, (0, 0, 0, missing)) if missing else rows


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
