"""The last kernel of selection: finds each row's token among its candidates."""

from __future__ import annotations

import triton
import triton.language as tl

from .bounds import between, draw_number, load_points, sums_at_ends, top_p_number
from .rows import LIKELIEST, NUM_CANDIDATES, ROW_WORDS, SLOTS, largest_probability, mass_of

NUM_PIVOTS = tl.constexpr(4)
NO_KEY = tl.constexpr((1 << 31) - 1)


@triton.jit
def load_keys(keys, first, num, BLOCK: tl.constexpr):
    """Load up to BLOCK candidates' keys; -1 beyond them."""
    place = first + tl.arange(0, BLOCK)
    return tl.load(keys + place, mask=place < num, other=-1)


@triton.jit
def key_mass(key):
    """Return the mass of a key; 0 for -1."""
    return mass_of(tl.maximum(key, 0).to(tl.float32, bitcast=True))


@triton.jit
def find_key(keys, num, low, high, at_low, at_high, number, COUNTS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the largest key whose A (C if COUNTS) exceeds a number, A (C) above the key, and A (C) at it.

    Each round tries several keys, and moves the bounds to keys of tokens. So fewer different keys need fewer
    rounds.

    Args:
        keys: keys of `num` candidates, which include all tokens within the bounds.
        low, high: bounds of the key: [low, high). If no key is within the bounds, `low` is returned.
        at_low, at_high: A (or C) at the bounds; at_low > number >= at_high.
    """
    top = high
    beyond = at_high
    share = tl.arange(0, NUM_PIVOTS) + 1
    while high - low > 1:
        pivots = low + 1 + (high - low - 2) * share // (NUM_PIVOTS + 1)
        sums = tl.zeros([NUM_PIVOTS], tl.int32) + beyond
        smallest = tl.full([NUM_PIVOTS], NO_KEY, tl.int32)
        largest = tl.full([NUM_PIVOTS], -1, tl.int32)
        for first in range(0, num, BLOCK):
            key = load_keys(keys, first, num, BLOCK)
            weight = (key >= 0).to(tl.int32) if COUNTS else key_mass(key)
            key, weight = key[None, :], weight[None, :]
            reached = key >= pivots[:, None]
            sums += tl.sum(tl.where(reached & (key < top), weight, 0), axis=1)
            smallest = tl.minimum(smallest, tl.min(tl.where(reached, key, NO_KEY), axis=1))
            largest = tl.maximum(largest, tl.max(tl.where(reached, -1, key), axis=1))
        exceeds = sums > number
        at_low = tl.minimum(at_low, tl.min(tl.where(exceeds, sums, at_low), axis=0))
        at_high = tl.maximum(at_high, tl.max(tl.where(exceeds, at_high, sums), axis=0))
        low = tl.maximum(low, tl.max(tl.where(exceeds, smallest, low), axis=0))
        high = tl.minimum(high, tl.min(tl.where(exceeds, high, largest + 1), axis=0))
    return low, at_high, at_low


@triton.jit
def mass_between(keys, num, low, high, BLOCK: tl.constexpr):
    """Return the mass of the candidates whose keys are in [low, high)."""
    mass = tl.zeros([BLOCK], tl.int32)
    for first in range(0, num, BLOCK):
        key = load_keys(keys, first, num, BLOCK)
        mass += tl.where((key >= low) & (key < high), key_mass(key), 0)
    return tl.sum(mass, axis=0)


@triton.jit
def nth_id(keys, ids, num, wanted, nth, BLOCK: tl.constexpr):
    """Return the nth smallest id (counted from 0) of the candidates with the key `wanted`."""
    low = tl.full([], NO_KEY, tl.int32)
    high = tl.full([], -1, tl.int32)
    for first in range(0, num, BLOCK):
        is_meant = load_keys(keys, first, num, BLOCK) == wanted
        own = tl.load(ids + first + tl.arange(0, BLOCK), mask=is_meant, other=0)
        low = tl.minimum(low, tl.min(tl.where(is_meant, own, NO_KEY), axis=0))
        high = tl.maximum(high, tl.max(tl.where(is_meant, own, -1), axis=0))
    while low < high:
        middle = low + (high - low) // 2
        count = tl.zeros([], tl.int32)
        last = tl.full([], -1, tl.int32)
        following = high
        for first in range(0, num, BLOCK):
            is_meant = load_keys(keys, first, num, BLOCK) == wanted
            own = tl.load(ids + first + tl.arange(0, BLOCK), mask=is_meant, other=0)
            is_before = is_meant & (own <= middle)
            count += tl.sum(is_before.to(tl.int32), axis=0)
            last = tl.maximum(last, tl.max(tl.where(is_before, own, -1), axis=0))
            is_after = is_meant & (own > middle)
            following = tl.minimum(following, tl.min(tl.where(is_after, own, NO_KEY), axis=0))
        is_reached = count > nth
        high = tl.where(is_reached, last, high)
        low = tl.where(is_reached, low, following)
    return low


@triton.jit
def find_mass(points, masses, valid, whole, high, keys, num, number, BLOCK: tl.constexpr):
    """Return the largest key whose A exceeds a number, A above the key, and A at the key."""
    low, end = between(points, masses, valid, number, number, high)
    at_low, at_end = sums_at_ends(masses, valid, number, number, masses, whole)
    return find_key(keys, num, low, end, at_low, at_end, number, False, BLOCK)


@triton.jit
def find_rest(points, masses, counts, valid, whole, high, keys, num, number, BLOCK: tl.constexpr):
    """Return A at the largest key whose C exceeds a number."""
    low, end = between(points, counts, valid, number, number, high)
    at_low, at_end = sums_at_ends(counts, valid, number, number, counts, number + 1)
    _, beyond = sums_at_ends(counts, valid, number, number, masses, whole)
    least, _, _ = find_key(keys, num, low, end, at_low, at_end, number, True, BLOCK)
    return beyond + mass_between(keys, num, least, end, BLOCK)


@triton.jit(do_not_specialize_on_alignment=["draws", "top_k", "top_p"])
def finish_kernel(
    draws,  # [rows], float64
    top_k,  # [rows], int64
    top_p,  # [rows]
    records,  # [rows, ROW_WORDS], int32
    candidate_keys,  # [rows, vocab_size], int32
    candidate_ids,  # [rows, vocab_size], int32
    tokens,  # [rows], int64
    vocab_size,
    HAS_TOP_K: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Find each row's token. Grid: (rows,)."""
    row = tl.program_id(0).to(tl.int64)
    record = records + row * ROW_WORDS
    likeliest = tl.load(record + LIKELIEST).to(tl.float32, bitcast=True)
    high = largest_probability(likeliest, vocab_size).to(tl.int32, bitcast=True) + 1
    points, masses, counts, valid = load_points(record, HAS_TOP_K)
    whole = tl.load(record + SLOTS)
    num = tl.load(record + NUM_CANDIDATES)
    keys = candidate_keys + row * vocab_size
    limit = tl.load(top_k + row).to(tl.int32)
    is_limited = limit < vocab_size
    rest = whole
    if HAS_TOP_K:
        number_left = tl.where(is_limited, limit - 1, vocab_size)
        rest = find_rest(points, masses, counts, valid, whole, high, keys, num, number_left, BLOCK)
    kept = rest
    number_kept = top_p_number(rest, is_limited, tl.load(top_p + row))
    if number_kept < rest - 1:
        _least, _above, kept = find_mass(points, masses, valid, whole, high, keys, num, number_kept, BLOCK)
    kept = tl.minimum(kept, tl.load(record + SLOTS + 1))
    number = draw_number(tl.load(draws + row), kept)
    key, above, _at_key = find_mass(points, masses, valid, whole, high, keys, num, number, BLOCK)
    nth = (number - above) // tl.maximum(key_mass(key), 1)
    token = nth_id(keys, candidate_ids + row * vocab_size, num, key, nth, BLOCK)
    tl.store(tokens + row, tl.minimum(token, vocab_size - 1).to(tl.int64))
