"""The kernel for prefill: several new tokens per sequence, possibly after cached ones.

The query heads of a KV head (GQA) are flattened token by token: token 0's heads, token 1's heads, and so on.
A program takes a block of that list, so blocks are full for any number of query heads per KV head.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import triton
import triton.language as tl

from llmfw.core import LayerSpec

from .tile import LOG2_E, add_keys, as_numbers, find_slots, padded, row_bytes, score_factors

SINK_SCALE = tl.constexpr(LOG2_E)


@dataclass(frozen=True, slots=True)
class Spans:
    """The tokens of each of B sequences, on the device, all int32.

    Attributes:
        starts: index of each sequence's first new token among the tokens of the step: [B].
        counts: number of new tokens of each sequence: [B].
        kv_lens: number of tokens of each sequence, cached and new: [B].
    """

    starts: torch.Tensor
    counts: torch.Tensor
    kv_lens: torch.Tensor


@triton.jit
def visit_block(
    tile: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    pages: tl.tensor,
    start: tl.tensor,
    end: tl.tensor,
    positions: tl.tensor,
    window: tl.tensor,
    kv_head: tl.tensor,
    accumulated: tl.tensor,
    top: tl.tensor,
    total: tl.tensor,
    scale: tl.tensor,
    cap: tl.tensor,
    has_cap: tl.constexpr,
    has_window: tl.constexpr,
    masked: tl.constexpr,
    page_size: tl.constexpr,
    num_kv_heads: tl.constexpr,
    head_dim: tl.constexpr,
    v_head_dim: tl.constexpr,
    block_keys: tl.constexpr,
    block_dim: tl.constexpr,
    block_v_dim: tl.constexpr,
) -> tl.tensor:
    """Attend to the block of keys from `start` on; return the updated `accumulated`, `top` and `total`."""
    dims = tl.arange(0, block_dim)
    v_dims = tl.arange(0, block_v_dim)
    places = start + tl.arange(0, block_keys)
    valid = places < end
    slots = find_slots(pages, places, valid, page_size) * num_kv_heads + kv_head
    at = keys + slots[None, :] * head_dim + dims[:, None]
    k = tl.load(at, mask=valid[None, :] & (dims < head_dim)[:, None], other=0.0)
    at = values + slots[:, None] * v_head_dim + v_dims[None, :]
    v = tl.load(at, mask=valid[:, None] & (v_dims < v_head_dim)[None, :], other=0.0)
    k, v = as_numbers(k, tile), as_numbers(v, tile)
    visible = places[None, :] <= positions[:, None]
    if has_window:
        visible = visible & (positions[:, None] - places[None, :] < window)
    return add_keys(tile, k, v, visible, accumulated, top, total, scale, cap, has_cap, masked)


@triton.jit
def prefill_kernel(
    query: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    page_table: tl.tensor,
    rows: tl.tensor,
    starts: tl.tensor,
    counts: tl.tensor,
    kv_lens: tl.tensor,
    blocks: tl.tensor,
    sinks: tl.tensor,
    output: tl.tensor,
    query_token_stride: tl.tensor,
    query_head_stride: tl.tensor,
    row_stride: tl.tensor,
    scale: tl.tensor,
    cap: tl.tensor,
    window: tl.tensor,
    value_scale: tl.tensor,
    has_cap: tl.constexpr,
    has_window: tl.constexpr,
    has_sinks: tl.constexpr,
    page_size: tl.constexpr,
    num_heads: tl.constexpr,
    num_kv_heads: tl.constexpr,
    head_dim: tl.constexpr,
    v_head_dim: tl.constexpr,
    block_queries: tl.constexpr,
    block_keys: tl.constexpr,
    block_dim: tl.constexpr,
    block_v_dim: tl.constexpr,
) -> None:
    """Attend with one block of queries of one KV head. Grid: (block, KV head)."""
    shared: tl.constexpr = num_heads // num_kv_heads
    sequence = tl.load(blocks + tl.program_id(0) * 2)
    offset = tl.load(blocks + tl.program_id(0) * 2 + 1)
    kv_head = tl.program_id(1)
    count = tl.load(counts + sequence)
    stored = tl.load(kv_lens + sequence) - count
    pages = page_table + tl.load(rows + sequence).to(tl.int64) * row_stride

    listed = offset + tl.arange(0, block_queries)
    held = listed < count * shared
    # Rows beyond the end repeat the last token, so that they see at least one key. They are not stored.
    token = tl.minimum(listed // shared, count - 1)
    positions = stored + token
    heads = kv_head * shared + listed % shared
    tokens = (tl.load(starts + sequence) + token).to(tl.int64)
    dims = tl.arange(0, block_dim)
    v_dims = tl.arange(0, block_v_dim)
    at = query + (tokens * query_token_stride + heads * query_head_stride)[:, None] + dims[None, :]
    tile = tl.load(at, mask=held[:, None] & (dims < head_dim)[None, :], other=0.0)

    accumulated = tl.full((block_queries, block_v_dim), 0.0, tl.float32)
    top = tl.full((block_queries,), float("-inf"), tl.float32)
    total = tl.full((block_queries,), 0.0, tl.float32)
    earliest = stored + offset // shared
    end = stored + tl.minimum((offset + block_queries - 1) // shared, count - 1) + 1
    if has_window:
        middle = tl.maximum(earliest - window + 1, 0) // block_keys * block_keys
    else:
        middle = (earliest + 1) // block_keys * block_keys
        for start in range(0, middle, block_keys):  # every row sees every key, so no mask is needed
            accumulated, top, total = visit_block(
                tile,
                keys,
                values,
                pages,
                start,
                end,
                positions,
                window,
                kv_head,
                accumulated,
                top,
                total,
                scale,
                cap,
                has_cap,
                False,
                False,
                page_size,
                num_kv_heads,
                head_dim,
                v_head_dim,
                block_keys,
                block_dim,
                block_v_dim,
            )
    for start in range(middle, end, block_keys):
        accumulated, top, total = visit_block(
            tile,
            keys,
            values,
            pages,
            start,
            end,
            positions,
            window,
            kv_head,
            accumulated,
            top,
            total,
            scale,
            cap,
            has_cap,
            has_window,
            True,
            page_size,
            num_kv_heads,
            head_dim,
            v_head_dim,
            block_keys,
            block_dim,
            block_v_dim,
        )

    if has_sinks:
        sink = tl.load(sinks + heads).to(tl.float32) * SINK_SCALE
        total += tl.exp2(sink - top)
    result = accumulated * value_scale / total[:, None]
    at = output + (tokens * num_heads + heads)[:, None] * v_head_dim + v_dims[None, :]
    tl.store(at, result.to(output.dtype.element_ty), mask=held[:, None] & (v_dims < v_head_dim)[None, :])


@dataclass(frozen=True, slots=True)
class Tiles:
    """Tile sizes and launch parameters of the prefill kernel for one layer.

    Attributes:
        queries: rows in a block of queries; a token has one row per query head of the KV head.
        keys: keys in a block.
        num_warps, num_stages: Triton's launch parameters.
    """

    queries: int
    keys: int
    num_warps: int
    num_stages: int

    @classmethod
    def of(cls, layer: LayerSpec, dtype: torch.dtype, capability: int) -> Tiles:
        """Return tiles that fit into a device's shared memory and registers without spilling (tested).

        Args:
            layer: geometry of the layer.
            dtype: dtype of queries, to which keys and values are converted.
            capability: major compute capability of the device.
        """
        size = row_bytes(layer, dtype)
        if dtype.itemsize > 2 and size > 64:
            # Products in float32 do not run on tensor cores, and take many registers.
            return cls(32, 32, 4, 2) if size == 256 else cls(16, 16, 4, 1)
        if size <= 128:
            return cls(128, 64, 8, 3)
        if size <= 256:
            return cls(128, 64 if capability >= 9 else 32, 8, 2)
        return cls(64, 32, 8, 2)


def cut_queries(
    query_lens: npt.NDArray[np.int64],
    kv_lens: npt.NDArray[np.int64],
    num_single: int,
    shared: int,
    size: int,
) -> npt.NDArray[np.int32]:
    """Split the queries of B sequences into blocks, most keys first: [blocks, (sequence, first row)].

    Args:
        query_lens: number of new tokens of each sequence: [B].
        kv_lens: number of tokens of each sequence, cached and new: [B].
        num_single: number of sequences to skip at the start, because they decode.
        shared: number of query heads per KV head.
        size: rows in a block.
    """
    num_blocks = -(-query_lens * shared // size)
    num_blocks[:num_single] = 0
    sequences = np.repeat(np.arange(len(query_lens)), num_blocks)
    before = np.cumsum(num_blocks) - num_blocks
    offsets = (np.arange(len(sequences)) - before[sequences]) * size
    num_keys = (kv_lens - query_lens)[sequences] + (offsets + size) // shared
    order = np.argsort(-num_keys, kind="stable")
    return np.stack([sequences, offsets], axis=1)[order].astype(np.int32)


def prefill(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    page_table: torch.Tensor,
    rows: torch.Tensor,
    spans: Spans,
    blocks: torch.Tensor,
    layer: LayerSpec,
    tiles: Tiles,
    sinks: torch.Tensor | None,
    output: torch.Tensor,
    scales: tuple[float, float] = (1.0, 1.0),
) -> None:
    """Compute causal attention for the new tokens of selected sequences of a batch of B.

    Args:
        query: queries of the whole step: [T, H, D], the last dimension contiguous.
        keys, values: the layer's storage, contiguous: [pages, page_size, Hkv, D] and [pages, page_size, Hkv,
            Dv].
        page_table: [R, W], int32, the last dimension contiguous.
        rows: each sequence's row of the page table: [B], integers.
        spans: tokens of each sequence.
        blocks: blocks of `tiles.queries` rows, from `cut_queries`: [blocks, 2]. They select the sequences to
            compute.
        layer: geometry of the layer.
        tiles: tile sizes for the layer.
        sinks: attention sinks: [H], or None.
        output: tensor to write the result to: [T, H, Dv], contiguous. Only the rows of the selected sequences
            are written.
        scales: factors of the stored keys and values.
    """
    scale, cap = score_factors(layer, scales[0])
    prefill_kernel[(len(blocks), layer.num_kv_heads)](
        query,
        keys,
        values,
        page_table,
        rows,
        spans.starts,
        spans.counts,
        spans.kv_lens,
        blocks,
        sinks,
        output,
        query.stride(0),
        query.stride(1),
        page_table.stride(0),
        scale,
        cap,
        layer.sliding_window or 0,
        scales[1],
        has_cap=layer.softcap is not None,
        has_window=layer.sliding_window is not None,
        has_sinks=sinks is not None,
        page_size=keys.shape[1],
        num_heads=layer.num_heads,
        num_kv_heads=layer.num_kv_heads,
        head_dim=layer.head_dim,
        v_head_dim=layer.v_head_dim,
        block_queries=tiles.queries,
        block_keys=tiles.keys,
        block_dim=padded(layer.head_dim),
        block_v_dim=padded(layer.v_head_dim),
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
    )
