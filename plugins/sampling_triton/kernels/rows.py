"""Functions that all sampling kernels share: the softmax of a row, which several programs compute in chunks.

A row is split into chunks of CHUNK tokens, independent of the number of rows. So the floating-point sum of a
row is always added up in the same order, and a row's probabilities do not depend on the other rows. A
probability p has a mass and a key. The mass is p · 2**30, rounded to an integer. The key is the bits of p,
read as an integer; keys have the same order as probabilities. Kernels must be compiled without fused
multiply-adds, to round as torch does.
"""

from __future__ import annotations

import triton
import triton.language as tl

ONE = tl.constexpr(float(1 << 30))
"""Mass of a probability of 1."""

LEAST_KEY = tl.constexpr((127 - 31) << 23)
"""Bits of 2**-31. Probabilities of at most this have a mass of 0."""

SLOTS = tl.constexpr(32)
NUM_CANDIDATES, MOST, LIKELIEST = tl.constexpr(96), tl.constexpr(97), tl.constexpr(98)
ROW_WORDS = tl.constexpr(128)
"""Integers of a row's record: keys, masses and counts of SLOTS points each; the number of candidates; and the
bits of the largest scaled logit and of the largest probability. The last two are computed once: another
kernel could add up a row's chunks in another order, and get other keys."""


@triton.jit
def mass_of(p):
    """Round p · 2**30 to the nearest integer, halves to the even integer."""
    scaled = p * ONE
    # Adding 2**23 leaves no bits for a fraction. Numbers from 2**23 on have no fraction.
    rounded = (scaled + 8388608.0) - 8388608.0
    return tl.where(scaled < 8388608.0, rounded, scaled).to(tl.int32)


@triton.jit
def scaled_logits(logits, temperature, row, place, inside, row_stride):
    """Load logits of a row and divide them by the row's temperature.

    Logits that are not `inside` become -inf.
    """
    factor = 1.0 / tl.load(temperature + row)
    return (
        tl.load(logits + row * row_stride + place, mask=inside, other=float("-inf")).to(tl.float32) * factor
    )


@triton.jit(do_not_specialize_on_alignment=["temperature"])
def summarize_kernel(
    logits,  # [rows, vocab_size], rows row_stride apart
    temperature,  # [rows]
    largest,  # [rows, chunks], float32: largest scaled logit of each chunk
    total,  # [rows, chunks], float32: sum of exp(scaled logit - largest)
    vocab_size,
    row_stride,
    num_chunks,
    CHUNK: tl.constexpr,
):
    """Compute the softmax's maximum and sum of each chunk. Grid: (rows, chunks)."""
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    place = chunk * CHUNK + tl.arange(0, CHUNK)
    scaled = scaled_logits(logits, temperature, row, place, place < vocab_size, row_stride)
    most = tl.max(scaled, axis=0)
    subtracted = tl.where(most == float("-inf"), 0.0, most)  # a masked chunk adds 0, not NaN
    tl.store(largest + row * num_chunks + chunk, most)
    tl.store(total + row * num_chunks + chunk, tl.sum(tl.exp(scaled - subtracted), axis=0))


@triton.jit
def chunk_totals(largest, total, row, num_chunks, CHUNKS: tl.constexpr):
    """Return a row's largest scaled logit, and each chunk's sum of exp(scaled logit - largest): [CHUNKS].

    The sums contain NaN if the row has no softmax: it has NaN or infinity, or only -inf.
    """
    chunk = tl.arange(0, CHUNKS)
    inside = chunk < num_chunks
    each = tl.load(largest + row * num_chunks + chunk, mask=inside, other=float("-inf"))
    sums = tl.load(total + row * num_chunks + chunk, mask=inside, other=0.0)
    most = tl.max(each, axis=0)
    return most, tl.where(inside, sums * tl.exp(each - most), 0.0)


@triton.jit
def normalizer(largest, total, row, num_chunks, CHUNKS: tl.constexpr):
    """Return a row's largest scaled logit and its largest probability (NaN if the row has no softmax)."""
    most, sums = chunk_totals(largest, total, row, num_chunks, CHUNKS)
    return most, 1.0 / tl.sum(sums, axis=0)


@triton.jit
def largest_probability(likeliest, vocab_size):
    """Replace NaN by 1 / vocab_size: in a row without a softmax, all tokens are equally likely."""
    return tl.where(likeliest >= 0, likeliest, 1.0 / vocab_size)


@triton.jit
def probabilities(logits, temperature, row, place, inside, row_stride, most, likeliest, given):
    """Return the probabilities of a row's tokens; `given` for each token if the row has no softmax."""
    scaled = scaled_logits(logits, temperature, row, place, inside, row_stride)
    return tl.where(likeliest >= 0, tl.exp(scaled - most) * likeliest, given)


@triton.jit
def chunk_keys(logits, temperature, record, row, chunk, vocab_size, row_stride, CHUNK: tl.constexpr):
    """Return keys and masses of a chunk's tokens, and a key above all of the row's keys.

    Beyond the vocabulary, the key is -1 and the mass 0.
    """
    most = tl.load(record + MOST).to(tl.float32, bitcast=True)
    likeliest = tl.load(record + LIKELIEST).to(tl.float32, bitcast=True)
    given = largest_probability(likeliest, vocab_size)
    place = chunk * CHUNK + tl.arange(0, CHUNK)
    inside = place < vocab_size
    p = probabilities(logits, temperature, row, place, inside, row_stride, most, likeliest, given)
    p = tl.where(inside, p, 0.0)
    keys = tl.where(inside, p.to(tl.int32, bitcast=True), -1)
    return keys, mass_of(p), given.to(tl.int32, bitcast=True) + 1
