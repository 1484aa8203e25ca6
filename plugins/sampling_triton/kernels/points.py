"""The two passes over all logits after the choice of points: one adds up sums, one lists the candidates."""

from __future__ import annotations

import triton
import triton.language as tl

from .bounds import NUM_DRAW, NUM_FIXED, NUM_TOP, bound
from .rows import NUM_CANDIDATES, ROW_WORDS, SLOTS, chunk_keys


@triton.jit(do_not_specialize_on_alignment=["temperature"])
def points_kernel(
    logits,  # [rows, vocab_size], rows row_stride apart
    temperature,  # [rows]
    records,  # [rows, ROW_WORDS], int32
    vocab_size,
    row_stride,
    HAS_TOP_K: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Add the mass and the number of a chunk's tokens at or above each point to the record.

    Grid: (rows, chunks).

    Only top_k needs the numbers.
    """
    row = tl.program_id(0).to(tl.int64)
    record = records + row * ROW_WORDS
    keys, masses, _high = chunk_keys(
        logits, temperature, record, row, tl.program_id(1), vocab_size, row_stride, CHUNK
    )
    for i in tl.static_range(NUM_FIXED + NUM_DRAW + (1 + HAS_TOP_K) * NUM_TOP):
        reached = keys >= tl.load(record + i)
        mass = tl.sum(tl.where(reached, masses, 0), axis=0)
        tl.atomic_add(record + SLOTS + i, mass, sem="relaxed")
        if HAS_TOP_K:
            count = tl.sum(reached.to(tl.int32), axis=0)
            tl.atomic_add(record + 2 * SLOTS + i, count, sem="relaxed")


@triton.jit(do_not_specialize_on_alignment=["temperature", "draws", "top_k", "top_p"])
def candidates_kernel(
    logits,  # [rows, vocab_size], rows row_stride apart
    temperature,  # [rows]
    draws,  # [rows], float64
    top_k,  # [rows], int64
    top_p,  # [rows]
    records,  # [rows, ROW_WORDS], int32
    candidate_keys,  # [rows, vocab_size], int32
    candidate_ids,  # [rows, vocab_size], int32
    vocab_size,
    row_stride,
    HAS_TOP_K: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """List the tokens within the bounds, in any order, and count them in the record. Grid: (rows, chunks)."""
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    record = records + row * ROW_WORDS
    keys, _masses, high = chunk_keys(logits, temperature, record, row, chunk, vocab_size, row_stride, CHUNK)
    d_low, d_high, p_low, p_high, k_low, k_high = bound(
        record,
        high,
        tl.load(draws + row),
        tl.load(top_k + row).to(tl.int32),
        tl.load(top_p + row),
        vocab_size,
        HAS_TOP_K,
    )
    is_candidate = ((keys >= d_low) & (keys < d_high)) | ((keys >= p_low) & (keys < p_high))
    if HAS_TOP_K:
        is_candidate = is_candidate | ((keys >= k_low) & (keys < k_high))
    taken = is_candidate.to(tl.int32)
    count = tl.sum(taken, axis=0)
    if count > 0:
        first = tl.atomic_add(record + NUM_CANDIDATES, count, sem="relaxed")
        place = row * vocab_size + first + tl.cumsum(taken, axis=0) - 1
        tl.store(candidate_keys + place, keys, mask=is_candidate)
        tl.store(candidate_ids + place, chunk * CHUNK + tl.arange(0, CHUNK), mask=is_candidate)
