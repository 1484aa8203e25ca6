"""The passes of selection over all logits: sums at points, then the candidates between the points."""

from __future__ import annotations

import triton
import triton.language as tl

from .bounds import NUM_EACH, NUM_FIRST, bound
from .rows import LEAST_KEY, ROW_WORDS, SLOTS, chunk_keys

NUM_SPREAD = tl.constexpr(14)
"""Points of the first pass that are spread over the keys of likely tokens."""


@triton.jit
def add_point(record, slot, point, keys, masses, is_first, HAS_TOP_K: tl.constexpr):
    """Add a chunk's mass and number of tokens of at least a key to a row's record."""
    reached = keys >= point
    tl.atomic_add(record + SLOTS + slot, tl.sum(tl.where(reached, masses, 0), axis=0), sem="relaxed")
    if HAS_TOP_K:
        tl.atomic_add(record + 2 * SLOTS + slot, tl.sum(reached.to(tl.int32), axis=0), sem="relaxed")
    tl.store(record + slot, point, mask=is_first)


@triton.jit
def likely_key(draw, top_p, high, vocab_size):
    """Return a key that the row's thresholds are probably not below.

    The tokens at and below a threshold have a known mass, and are at most as likely as it.
    """
    cut = tl.minimum(top_p, 1.0)
    cut = tl.where(cut < 1.0, cut, draw.to(tl.float32))
    least = tl.maximum(1.0 - cut, 1e-6) * 0.5 / vocab_size
    return tl.minimum(tl.maximum(least.to(tl.int32, bitcast=True), LEAST_KEY), high - 1)


@triton.jit(do_not_specialize_on_alignment=["temperature", "draws", "top_k", "top_p", "min_p"])
def points_kernel(
    logits,  # [rows, vocab_size], rows row_stride apart
    temperature,  # [rows]
    draws,  # [rows], float64
    top_k,  # [rows], int64
    top_p,  # [rows]
    min_p,  # [rows]
    largest,  # [rows, chunks]
    total,  # [rows, chunks]
    records,  # [rows, ROW_WORDS], int32
    vocab_size,
    row_stride,
    num_chunks,
    IS_FIRST: tl.constexpr,
    HAS_TOP_K: tl.constexpr,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """Add up the masses at the points of a pass. Grid: (rows, chunks)."""
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    keys, masses, likeliest = chunk_keys(
        logits, temperature, largest, total, row, chunk, vocab_size, row_stride, num_chunks, CHUNK, CHUNKS
    )
    record = records + row * ROW_WORDS
    high = likeliest.to(tl.int32, bitcast=True) + 1
    draw = tl.load(draws + row)
    share = tl.load(top_p + row)
    if IS_FIRST:
        least = (tl.load(min_p + row) * likeliest).to(tl.int32, bitcast=True)
        add_point(record, 0, LEAST_KEY, keys, masses, chunk == 0, HAS_TOP_K)
        add_point(record, 1, tl.maximum(least, LEAST_KEY), keys, masses, chunk == 0, HAS_TOP_K)
        low = likely_key(draw, share, high, vocab_size)
        step = (high - 1 - low) // (NUM_SPREAD - 1)
        for i in tl.static_range(NUM_SPREAD):
            add_point(record, 2 + i, low + i * step, keys, masses, chunk == 0, HAS_TOP_K)
    else:
        limit = tl.load(top_k + row).to(tl.int32)
        d_low, d_high, p_low, p_high, k_low, k_high = bound(
            record, high, draw, limit, share, vocab_size, NUM_FIRST, HAS_TOP_K
        )
        for i in tl.static_range(NUM_EACH):
            d_point = d_low + 1 + (d_high - d_low - 1) * i // NUM_EACH
            add_point(record, NUM_FIRST + i, d_point, keys, masses, chunk == 0, HAS_TOP_K)
        for i in tl.static_range(NUM_EACH):
            p_point = p_low + 1 + (p_high - p_low - 1) * i // NUM_EACH
            add_point(record, NUM_FIRST + NUM_EACH + i, p_point, keys, masses, chunk == 0, HAS_TOP_K)
        if HAS_TOP_K:
            for i in tl.static_range(NUM_EACH):
                k_point = k_low + 1 + (k_high - k_low - 1) * i // NUM_EACH
                add_point(record, NUM_FIRST + 2 * NUM_EACH + i, k_point, keys, masses, chunk == 0, HAS_TOP_K)


@triton.jit(do_not_specialize_on_alignment=["temperature", "draws", "top_k", "top_p"])
def candidates_kernel(
    logits,  # [rows, vocab_size], rows row_stride apart
    temperature,  # [rows]
    draws,  # [rows], float64
    top_k,  # [rows], int64
    top_p,  # [rows]
    largest,  # [rows, chunks]
    total,  # [rows, chunks]
    records,  # [rows, ROW_WORDS], int32
    candidate_keys,  # [rows, vocab_size], int32
    candidate_ids,  # [rows, vocab_size], int32
    vocab_size,
    row_stride,
    num_chunks,
    HAS_TOP_K: tl.constexpr,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """List the tokens within the bounds, in any order, and count them in the record. Grid: (rows, chunks)."""
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    keys, _, likeliest = chunk_keys(
        logits, temperature, largest, total, row, chunk, vocab_size, row_stride, num_chunks, CHUNK, CHUNKS
    )
    record = records + row * ROW_WORDS
    high = likeliest.to(tl.int32, bitcast=True) + 1
    d_low, d_high, p_low, p_high, k_low, k_high = bound(
        record,
        high,
        tl.load(draws + row),
        tl.load(top_k + row).to(tl.int32),
        tl.load(top_p + row),
        vocab_size,
        NUM_FIRST + (2 + HAS_TOP_K) * NUM_EACH,
        HAS_TOP_K,
    )
    is_candidate = ((keys >= d_low) & (keys < d_high)) | ((keys >= p_low) & (keys < p_high))
    if HAS_TOP_K:
        is_candidate = is_candidate | ((keys >= k_low) & (keys < k_high))
    taken = is_candidate.to(tl.int32)
    count = tl.sum(taken, axis=0)
    if count > 0:
        first = tl.atomic_add(record + 3 * SLOTS, count, sem="relaxed")
        place = row * vocab_size + first + tl.cumsum(taken, axis=0) - 1
        tl.store(candidate_keys + place, keys, mask=is_candidate)
        tl.store(candidate_ids + place, chunk * CHUNK + tl.arange(0, CHUNK), mask=is_candidate)
