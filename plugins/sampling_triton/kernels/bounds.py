"""Computes bounds of the keys at which a row reaches top_k, top_p and its draw, from sums at some points.

Let A(key) be the total mass of all tokens with at least this key, and C(key) their number. A point is a key
with its A and its C. The filters and the draw each ask for the largest key whose A (or C) exceeds a number:

    top_k:  least = largest key with C > top_k - 1,                            rest = A(least)
    top_p:  least = largest key with A > rest - max(1, int(rest - top_p · whole + 1)),  kept = A(least)
    min_p:  kept = min(kept, A(min_p · largest probability))
    draw:   the token's key = largest key with A > int(draw · kept)

A and C fall as the key rises, so bounds of one number give bounds of the next number.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .rows import LEAST_KEY, SLOTS

NUM_FIXED, NUM_DRAW, NUM_TOP = tl.constexpr(2), tl.constexpr(9), tl.constexpr(7)
"""Numbers of a row's points, in this order: two fixed points (the least key, and the key of min_p), the
points for the draw, and the points for top_p and top_k each."""


@triton.jit
def top_p_number(rest, is_limited, top_p):
    """Return the threshold for top_p.

    The smallest key that top_p keeps is the largest key whose A exceeds the threshold. Rounds as
    `sample_selected` does, in float64 and toward zero.
    """
    whole = tl.where(is_limited, rest, 1 << 30)
    left_out = rest.to(tl.float64) - top_p.to(tl.float64) * whole.to(tl.float64)
    return rest - tl.maximum((left_out + 1.0).to(tl.int32), 1)


@triton.jit
def draw_number(draw, kept):
    """Return the number for the draw: the token's key is the largest key whose A exceeds this number."""
    return (draw * kept.to(tl.float64)).to(tl.int32)


@triton.jit
def between(keys, sums, valid, smallest, largest, high):
    """Return bounds [low, high) of the largest key whose A or C exceeds a number.

    The number is between `smallest` and `largest`.
    """
    low = tl.max(tl.where(valid & (sums > largest), keys, LEAST_KEY), axis=0)
    return low, tl.min(tl.where(valid & (sums <= smallest), keys, high), axis=0)


@triton.jit
def sums_at_ends(sums, valid, smallest, largest, values, total):
    """Return A or C (`values`) at both ends of `between`; `total`: the value at the least key."""
    at_low = tl.min(tl.where(valid & (sums > largest), values, total), axis=0)
    return at_low, tl.max(tl.where(valid & (sums <= smallest), values, 0), axis=0)


@triton.jit
def load_points(record, HAS_TOP_K: tl.constexpr):
    """Load the points of a row's record: keys, A, C, and whether each slot is a point: [SLOTS] each.

    The points for top_k are loaded only if HAS_TOP_K.
    """
    slot = tl.arange(0, SLOTS)
    valid = slot < NUM_FIXED + NUM_DRAW + (1 + HAS_TOP_K) * NUM_TOP
    keys = tl.load(record + slot, mask=valid, other=0)
    masses = tl.load(record + SLOTS + slot, mask=valid, other=0)
    return keys, masses, tl.load(record + 2 * SLOTS + slot, mask=valid, other=0), valid


@triton.jit
def bound(record, high, draw, top_k, top_p, vocab_size, HAS_TOP_K: tl.constexpr):
    """Return bounds (`low` and `high`) of three keys: of the draw, of top_p and of top_k.

    If a filter keeps everything, both of its bounds are the least key.

    Args:
        record: record of the row.
        high: a key above all keys of the row.
        draw, top_k, top_p: parameters of the row.
    """
    keys, masses, counts, valid = load_points(record, HAS_TOP_K)
    total = tl.load(record + SLOTS)
    most, least = total, total  # bounds of the mass that top_k keeps
    k_low, k_high = LEAST_KEY, LEAST_KEY
    is_limited = top_k < vocab_size
    if HAS_TOP_K:
        number = tl.where(is_limited, top_k - 1, vocab_size)
        k_low, k_high = between(keys, counts, valid, number, number, high)
        most, least = sums_at_ends(counts, valid, number, number, masses, total)
        least = tl.maximum(least, 1)
    p_least, p_most = top_p_number(least, is_limited, top_p), top_p_number(most, is_limited, top_p)
    p_low, p_high = between(keys, masses, valid, p_least, p_most, high)
    at_low, _ = sums_at_ends(masses, valid, p_least, p_most, masses, total)
    is_cut = p_most < most - 1
    p_low, p_high = tl.where(is_cut, p_low, LEAST_KEY), tl.where(is_cut, p_high, LEAST_KEY)
    passing = tl.load(record + SLOTS + 1)
    kept_least = tl.minimum(tl.where(is_cut, p_least + 1, least), passing)
    kept_most = tl.minimum(tl.where(is_cut, tl.minimum(at_low, most), most), passing)
    smallest, largest = draw_number(draw, kept_least), draw_number(draw, kept_most)
    d_low, d_high = between(keys, masses, valid, smallest, largest, high)
    return d_low, d_high, p_low, p_high, k_low, k_high
