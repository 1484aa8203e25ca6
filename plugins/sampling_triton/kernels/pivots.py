"""Chooses the points of a row from a sample of the row's tokens.

A later kernel adds up masses at the points exactly.

The choice affects how many candidates are left between the points, but not which token is drawn.

The sample has every `scale`th token. The estimated mass below a key is `scale` times the mass of the sampled
tokens below the key. If the true mass is n, the estimate has a standard deviation of at most
sqrt(scale · mass of the key · n), because no token below the key has a larger mass. So if few tokens have
most of the mass, the bounds include these tokens.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .bounds import NUM_DRAW, NUM_FIXED, NUM_TOP
from .rows import (
    LEAST_KEY,
    LIKELIEST,
    MOST,
    NUM_CANDIDATES,
    ONE,
    ROW_WORDS,
    SLOTS,
    largest_probability,
    normalizer,
    probabilities,
)

DEVIATIONS = tl.constexpr(3.5)
"""Error of an estimate, in standard deviations, that makes a bound wrong. A wrong bound only costs time."""

NUM_ROUNDS = tl.constexpr(4)
NUM_PIVOTS = tl.constexpr(8)


@triton.jit
def deviation(scale, key, mass):
    """Return the largest expected error of an estimated mass below a key."""
    one = key.to(tl.float32, bitcast=True) * ONE
    return DEVIATIONS * tl.sqrt(scale * one * tl.maximum(mass, 1.0))


@triton.jit
def spread(low, high):
    """Return evenly spaced keys between two keys: [NUM_PIVOTS]."""
    return low + (high - low) * (tl.arange(0, NUM_PIVOTS) + 1) // (NUM_PIVOTS + 1)


@triton.jit
def mass_below(keys, masses, scale, key):
    """Return the estimated mass of the tokens below a key."""
    return scale * tl.sum(tl.where(keys < key, masses, 0.0), axis=0)


@triton.jit
def mass_band(keys, masses, scale, high, fewest, most):
    """Return bounds [low, high) of the key below which the mass reaches a number from `fewest` to `most`."""
    low = tl.full([], LEAST_KEY, tl.int32)
    fewest = tl.maximum(fewest, 1.0)
    most = tl.maximum(most, fewest)
    for _ in tl.static_range(NUM_ROUNDS):
        pivots = spread(low, high)
        below = scale * tl.sum(tl.where(keys[None, :] < pivots[:, None], masses[None, :], 0.0), axis=1)
        is_low = below <= fewest - deviation(scale, pivots, fewest)
        is_high = below >= most + deviation(scale, pivots, most)
        low = tl.max(tl.where(is_low, pivots, low), axis=0)
        high = tl.min(tl.where(is_high, pivots, high), axis=0)
    return low, high


@triton.jit
def count_band(keys, scale, high, count):
    """Return bounds [low, high) of the largest key that at least `count` tokens reach."""
    low = tl.full([], LEAST_KEY, tl.int32)
    margin = DEVIATIONS * tl.sqrt(scale * count)
    for _ in tl.static_range(NUM_ROUNDS):
        pivots = spread(low, high)
        above = scale * tl.sum((keys[None, :] >= pivots[:, None]).to(tl.float32), axis=1)
        low = tl.max(tl.where(above >= count + margin + scale, pivots, low), axis=0)
        high = tl.min(tl.where(above <= count - margin - scale, pivots, high), axis=0)
    return low, high


@triton.jit
def evenly(low, high, place, NUM: tl.constexpr):
    """Return the key at index `place` of NUM evenly spaced keys from `low` to `high`."""
    return low + (high - low) * tl.minimum(tl.maximum(place, 0), NUM - 1) // (NUM - 1)


@triton.jit(do_not_specialize_on_alignment=["temperature", "draws", "top_k", "top_p", "min_p"])
def pivots_kernel(
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
    HAS_TOP_K: tl.constexpr,
    CHUNKS: tl.constexpr,
    SAMPLE: tl.constexpr,
):
    """Begin a row's record: its softmax, the points that divide its probabilities, and sums of 0. Grid: (rows,)."""
    row = tl.program_id(0).to(tl.int64)
    record = records + row * ROW_WORDS
    most, likeliest = normalizer(largest, total, row, num_chunks, CHUNKS)
    given = largest_probability(likeliest, vocab_size)
    high = given.to(tl.int32, bitcast=True) + 1

    step = tl.maximum(vocab_size // SAMPLE, 1)
    place = tl.arange(0, SAMPLE) * step
    inside = place < vocab_size
    p = probabilities(logits, temperature, row, place, inside, row_stride, most, likeliest, given)
    keys = tl.where(inside, p.to(tl.int32, bitcast=True), -1)
    masses = tl.where(inside, p * ONE, 0.0)
    scale = step.to(tl.float32)

    rest_least = tl.full([], ONE, tl.float32)
    rest_most = rest_least
    k_low = tl.full([], LEAST_KEY, tl.int32)
    k_high = k_low + 1
    if HAS_TOP_K:
        limit = tl.load(top_k + row).to(tl.float32)
        is_limited = limit < vocab_size
        low, end = count_band(keys, scale, high, limit)
        below_low, below_end = mass_below(keys, masses, scale, low), mass_below(keys, masses, scale, end)
        rest_most = tl.where(is_limited, ONE - below_low + deviation(scale, low, below_low), ONE)
        rest_least = tl.where(is_limited, ONE - below_end - deviation(scale, end, below_end), ONE)
        k_low, k_high = tl.where(is_limited, low, k_low), tl.where(is_limited, end, k_high)
    rest_most = tl.minimum(tl.maximum(rest_most, 0.0), ONE)
    rest_least = tl.minimum(tl.maximum(rest_least, 0.0), rest_most)

    share = tl.load(top_p + row)
    is_cut = share < 1.0
    cut = tl.minimum(share, 1.0)
    p_low, p_high = mass_band(keys, masses, scale, high, ONE - rest_most * cut, ONE - rest_least * cut)
    last = p_high.to(tl.float32, bitcast=True) * ONE  # largest mass that top_p may keep beyond its share
    kept_most = tl.where(is_cut, tl.minimum(rest_most * cut + last, rest_most), rest_most)
    kept_least = rest_least * cut
    p_low, p_high = tl.where(is_cut, p_low, LEAST_KEY), tl.where(is_cut, p_high, LEAST_KEY + 1)

    least_key = tl.maximum((tl.load(min_p + row) * given).to(tl.int32, bitcast=True), LEAST_KEY)
    below = mass_below(keys, masses, scale, least_key)
    off = deviation(scale, least_key, below)
    is_whole = least_key == LEAST_KEY
    kept_most = tl.where(is_whole, kept_most, tl.minimum(kept_most, tl.maximum(ONE - below + off, 0.0)))
    kept_least = tl.where(is_whole, kept_least, tl.minimum(kept_least, tl.maximum(ONE - below - off, 0.0)))

    draw = tl.load(draws + row).to(tl.float32)
    d_low, d_high = mass_band(keys, masses, scale, high, ONE - draw * kept_most, ONE - draw * kept_least)

    slot = tl.arange(0, SLOTS)
    points = tl.where(slot == 0, LEAST_KEY, least_key)
    d_first: tl.constexpr = NUM_FIXED
    p_first: tl.constexpr = NUM_FIXED + NUM_DRAW
    k_first: tl.constexpr = NUM_FIXED + NUM_DRAW + NUM_TOP
    points = tl.where(slot >= d_first, evenly(d_low, d_high, slot - d_first, NUM_DRAW), points)
    points = tl.where(slot >= p_first, evenly(p_low, p_high, slot - p_first, NUM_TOP), points)
    points = tl.where(slot >= k_first, evenly(k_low, k_high, slot - k_first, NUM_TOP), points)
    tl.store(record + slot, points)
    tl.store(record + SLOTS + slot, tl.zeros([SLOTS], tl.int32))
    tl.store(record + 2 * SLOTS + slot, tl.zeros([SLOTS], tl.int32))
    tl.store(record + NUM_CANDIDATES, 0)
    tl.store(record + MOST, most.to(tl.int32, bitcast=True))
    tl.store(record + LIKELIEST, likeliest.to(tl.int32, bitcast=True))
