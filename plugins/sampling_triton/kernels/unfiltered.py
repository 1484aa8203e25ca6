"""The last kernel of sampling without filters: finds a row's chunk, then the token in it."""

from __future__ import annotations

import triton
import triton.language as tl

from .rows import chunk_totals, mass_of, scaled_logits


@triton.jit(do_not_specialize_on_alignment=["temperature", "draws"])
def unfiltered_kernel(
    logits,  # [rows, vocab_size], rows row_stride apart
    temperature,  # [rows]
    draws,  # [rows], float64
    largest,  # [rows, chunks]
    total,  # [rows, chunks]
    tokens,  # [rows], int64
    vocab_size,
    row_stride,
    num_chunks,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """Find the first token, by id, at which the cumulative mass exceeds draw × total. Grid: (rows,).

    The masses of all chunks add up to about 2**30, and so do the masses of all tokens within a chunk.
    """
    row = tl.program_id(0).to(tl.int64)
    _, sums = chunk_totals(largest, total, row, num_chunks, CHUNKS)
    chunk = tl.arange(0, CHUNKS)
    sizes = tl.minimum(tl.maximum(vocab_size - chunk * CHUNK, 0), CHUNK)
    whole = tl.sum(sums, axis=0)
    has_softmax = whole >= 0  # not NaN
    masses = mass_of(tl.where(has_softmax, sums / whole, sizes / vocab_size))
    number = tl.load(draws + row) * tl.sum(masses, axis=0).to(tl.float64)
    passed = tl.cumsum(masses, axis=0) <= number.to(tl.int32)
    chosen = tl.sum(passed.to(tl.int32), axis=0)
    before = tl.sum(tl.where(passed, masses, 0), axis=0)
    own = tl.sum(tl.where(chunk == chosen, masses, 0), axis=0)
    share = (number - before.to(tl.float64)) / own.to(tl.float64)

    place = chosen * CHUNK + tl.arange(0, CHUNK)
    inside = place < vocab_size
    scaled = scaled_logits(logits, temperature, row, place, inside, row_stride)
    each = row * num_chunks + chosen
    p = tl.exp(scaled - tl.load(largest + each)) / tl.load(total + each)
    size = tl.sum(tl.where(chunk == chosen, sizes, 0), axis=0)
    p = tl.where(inside, tl.where(has_softmax, p, 1.0 / size), 0.0)
    within = mass_of(p)
    in_chunk = tl.sum(within, axis=0)
    wanted = tl.minimum((share * in_chunk.to(tl.float64)).to(tl.int32), in_chunk - 1)
    skipped = tl.sum((tl.cumsum(within, axis=0) <= wanted).to(tl.int32), axis=0)
    tl.store(tokens + row, tl.minimum(chosen * CHUNK + skipped, vocab_size - 1).to(tl.int64))
