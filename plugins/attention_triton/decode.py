"""The kernels for decode: one query against many keys, so the keys are split over programs.

In stage 1, each program attends to one piece of one sequence's keys; the rows of its tile are up to 16 query
heads of one KV head. A sequence of one piece is then complete. Otherwise each piece stores its output and the
logarithm of its sum of weights, and stage 2 joins the pieces.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from llmfw.core import LayerSpec
from llmfw.core.kernels.dependent_launch import await_earlier_kernels, launch_next, launches_early

from .schedule import PIECE_STEP, Schedule
from .tile import LOG2_E, add_keys, as_numbers, find_slots, padded, row_bytes, score_factors

BLOCK_HEADS = 16
BLOCK_PIECES = 16
MOST_SINGLE_JOINS = 32
"""Largest number of sequences for which each query head has its own program in stage 2."""
SINK_SCALE = tl.constexpr(LOG2_E)


@dataclass(frozen=True, slots=True)
class Partials:
    """Partial results of P pieces, which stage 1 writes and stage 2 reads. All layers use the same buffers.

    Attributes:
        outputs: flat buffer for [P, H, Dv], float32.
        log_sums: flat buffer for [P, H], float32: log2 of each sum of weights.
    """

    outputs: torch.Tensor
    log_sums: torch.Tensor

    @classmethod
    def empty(cls, num_pieces: int, num_heads: int, v_dims: int, device: torch.device) -> Partials:
        """Return buffers for layers of at most `num_heads` query heads and `v_dims` (H * Dv) outputs."""
        return cls(
            torch.empty(num_pieces * v_dims, dtype=torch.float32, device=device),
            torch.empty(num_pieces * num_heads, dtype=torch.float32, device=device),
        )


@triton.jit(do_not_specialize=["num_sequences"])
def attend_kernel(
    query: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    page_table: tl.tensor,
    rows: tl.tensor,
    pieces: tl.tensor,
    firsts: tl.tensor,
    sinks: tl.tensor,
    output: tl.tensor,
    outputs: tl.tensor,
    log_sums: tl.tensor,
    num_sequences: tl.tensor,
    query_token_stride: tl.tensor,
    query_head_stride: tl.tensor,
    row_stride: tl.tensor,
    scale: tl.tensor,
    cap: tl.tensor,
    value_scale: tl.tensor,
    has_cap: tl.constexpr,
    has_sinks: tl.constexpr,
    page_size: tl.constexpr,
    num_heads: tl.constexpr,
    num_kv_heads: tl.constexpr,
    head_dim: tl.constexpr,
    v_head_dim: tl.constexpr,
    block_heads: tl.constexpr,
    block_keys: tl.constexpr,
    block_dim: tl.constexpr,
    block_v_dim: tl.constexpr,
    launch_pdl: tl.constexpr,
) -> None:
    """Attend to one piece with one tile of query heads (stage 1). Grid: (piece, tile)."""
    launch_next(launch_pdl)
    await_earlier_kernels(launch_pdl)
    piece = tl.program_id(0)
    if piece >= tl.load(firsts + num_sequences):
        return
    sequence = tl.load(pieces + piece * 4).to(tl.int64)
    begin = tl.load(pieces + piece * 4 + 1)
    end = tl.load(pieces + piece * 4 + 2)
    num_pieces = tl.load(pieces + piece * 4 + 3)
    pages = page_table + tl.load(rows + sequence).to(tl.int64) * row_stride

    shared: tl.constexpr = num_heads // num_kv_heads
    tiles: tl.constexpr = (shared + block_heads - 1) // block_heads
    kv_head = tl.program_id(1) // tiles
    place = tl.program_id(1) % tiles * block_heads + tl.arange(0, block_heads)
    heads = kv_head * shared + place
    held = place < shared
    dims = tl.arange(0, block_dim)
    v_dims = tl.arange(0, block_v_dim)
    query_at = query + sequence * query_token_stride + heads[:, None] * query_head_stride + dims[None, :]
    tile = tl.load(query_at, mask=held[:, None] & (dims < head_dim)[None, :], other=0.0)

    accumulated = tl.full((block_heads, block_v_dim), 0.0, tl.float32)
    top = tl.full((block_heads,), float("-inf"), tl.float32)
    total = tl.full((block_heads,), 0.0, tl.float32)
    for start in range(begin, end, block_keys):
        places = start + tl.arange(0, block_keys)
        valid = places < end
        slots = find_slots(pages, places, valid, page_size) * num_kv_heads + kv_head
        keys_at = keys + slots[None, :] * head_dim + dims[:, None]
        k = tl.load(keys_at, mask=valid[None, :] & (dims < head_dim)[:, None], other=0.0)
        values_at = values + slots[:, None] * v_head_dim + v_dims[None, :]
        v = tl.load(values_at, mask=valid[:, None] & (v_dims < v_head_dim)[None, :], other=0.0)
        k, v = as_numbers(k, tile), as_numbers(v, tile)
        accumulated, top, total = add_keys(
            tile, k, v, valid[None, :], accumulated, top, total, scale, cap, has_cap, True
        )

    held_v = held[:, None] & (v_dims < v_head_dim)[None, :]
    accumulated = accumulated * value_scale
    if num_pieces == 1:
        if has_sinks:
            sink = tl.load(sinks + heads, mask=held, other=0.0).to(tl.float32) * SINK_SCALE
            total += tl.exp2(sink - top)
        result = accumulated / total[:, None]
        output_at = output + (sequence * num_heads + heads)[:, None] * v_head_dim + v_dims[None, :]
        tl.store(output_at, result.to(output.dtype.element_ty), mask=held_v)
    else:
        where = piece * num_heads + heads
        part_at = outputs + where[:, None] * v_head_dim + v_dims[None, :]
        tl.store(part_at, accumulated / total[:, None], mask=held_v)
        tl.store(log_sums + where, top + tl.log2(total), mask=held)


@triton.jit
def join_kernel(
    outputs: tl.tensor,
    log_sums: tl.tensor,
    firsts: tl.tensor,
    sinks: tl.tensor,
    output: tl.tensor,
    has_sinks: tl.constexpr,
    num_heads: tl.constexpr,
    v_head_dim: tl.constexpr,
    block_pieces: tl.constexpr,
    block_v_dim: tl.constexpr,
    block_heads: tl.constexpr,
    launch_pdl: tl.constexpr,
) -> None:
    """Join the pieces of one sequence, if there are several (stage 2). Grid: (sequence, block of query heads)."""
    launch_next(launch_pdl)
    await_earlier_kernels(launch_pdl)
    sequence = tl.program_id(0)
    first = tl.load(firsts + sequence)
    last = tl.load(firsts + sequence + 1)
    if last - first == 1:
        return
    v_dims = tl.arange(0, block_v_dim)
    first_head = tl.program_id(1) * block_heads
    for head in range(first_head, tl.minimum(first_head + block_heads, num_heads)):
        accumulated = tl.full((block_v_dim,), 0.0, tl.float32)
        top = tl.full((1,), float("-inf"), tl.float32)
        total = tl.full((1,), 0.0, tl.float32)
        for start in range(first, last, block_pieces):
            pieces = start + tl.arange(0, block_pieces)
            valid = pieces < last
            where = pieces * num_heads + head
            log_sum = tl.load(log_sums + where, mask=valid, other=float("-inf"))
            parts_at = outputs + where[:, None] * v_head_dim + v_dims[None, :]
            part = tl.load(parts_at, mask=valid[:, None] & (v_dims < v_head_dim)[None, :], other=0.0)
            new_top = tl.maximum(top, tl.max(log_sum, 0))
            weights = tl.exp2(log_sum - new_top)
            decay = tl.exp2(top - new_top)
            total = total * decay + tl.sum(weights, 0)
            accumulated = accumulated * decay + tl.sum(weights[:, None] * part, 0)
            top = new_top
        if has_sinks:
            total += tl.exp2(tl.load(sinks + head).to(tl.float32) * SINK_SCALE - top)
        at = output + (sequence.to(tl.int64) * num_heads + head) * v_head_dim + v_dims
        tl.store(at, (accumulated / total).to(output.dtype.element_ty), mask=v_dims < v_head_dim)


def heads_joined(num_sequences: int) -> int:
    """Return the number of query heads that a program of stage 2 joins.

    With many sequences, nearly all have only one piece, so their programs end at once. Starting thousands of
    such programs takes longer than running the other programs.
    """
    return 1 if num_sequences <= MOST_SINGLE_JOINS else 8


def num_tiles(layer: LayerSpec) -> int:
    """Return how many programs attend to one piece: the number of tiles of query heads, over all KV heads."""
    return layer.num_kv_heads * -(-(layer.num_heads // layer.num_kv_heads) // BLOCK_HEADS)


def keys_in_tile(layer: LayerSpec, dtype: torch.dtype) -> int:
    """Return the number of keys in a tile: as many as fit in 8 KiB, at most PIECE_STEP and at least 16."""
    return max(16, min(PIECE_STEP, 8192 // row_bytes(layer, dtype)))


def num_warps(dtype: torch.dtype, stored_as: torch.dtype) -> int:
    """Return the warps per program: more if keys are converted to float32, which takes registers."""
    return 8 if dtype.itemsize > 2 and stored_as != dtype else 4


def decode(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    page_table: torch.Tensor,
    rows: torch.Tensor,
    schedule: Schedule,
    partials: Partials,
    layer: LayerSpec,
    sinks: torch.Tensor | None,
    output: torch.Tensor,
    scales: tuple[float, float] = (1.0, 1.0),
) -> None:
    """Compute attention of B decoding sequences: each sequence's one query attends to all its stored tokens.

    Args:
        query: [B, H, D], the last dimension contiguous.
        keys, values: the layer's storage, contiguous: [pages, page_size, Hkv, D] and [pages, page_size, Hkv,
            Dv].
        page_table: [R, W], int32, the last dimension contiguous.
        rows: each sequence's row of the page table: [B], integers.
        schedule: schedule for these B sequences, with their current lengths and the layer's window.
        partials: buffers for the largest number of pieces that the schedule can have.
        layer: geometry of the layer.
        sinks: attention sinks: [H], or None.
        output: tensor to write the result to: [B, H, Dv], contiguous.
        scales: factors of the stored keys and values.
    """
    num_sequences = len(query)
    scale, cap = score_factors(layer, scales[0])
    is_early = launches_early(query.device)
    attend_kernel[(len(schedule.pieces), num_tiles(layer))](
        query,
        keys,
        values,
        page_table,
        rows,
        schedule.pieces,
        schedule.firsts,
        sinks,
        output,
        partials.outputs,
        partials.log_sums,
        num_sequences,
        query.stride(0),
        query.stride(1),
        page_table.stride(0),
        scale,
        cap,
        scales[1],
        has_cap=layer.softcap is not None,
        has_sinks=sinks is not None,
        page_size=keys.shape[1],
        num_heads=layer.num_heads,
        num_kv_heads=layer.num_kv_heads,
        head_dim=layer.head_dim,
        v_head_dim=layer.v_head_dim,
        block_heads=BLOCK_HEADS,
        block_keys=keys_in_tile(layer, query.dtype),
        block_dim=padded(layer.head_dim),
        block_v_dim=padded(layer.v_head_dim),
        launch_pdl=is_early,
        num_warps=num_warps(query.dtype, keys.dtype),
        num_stages=2,
    )
    block_heads = heads_joined(num_sequences)
    join_kernel[(num_sequences, -(-layer.num_heads // block_heads))](
        partials.outputs,
        partials.log_sums,
        schedule.firsts,
        sinks,
        output,
        has_sinks=sinks is not None,
        num_heads=layer.num_heads,
        v_head_dim=layer.v_head_dim,
        block_pieces=BLOCK_PIECES,
        block_v_dim=padded(layer.v_head_dim),
        block_heads=block_heads,
        launch_pdl=is_early,
        num_warps=4,
    )
