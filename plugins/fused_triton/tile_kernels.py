"""Triton kernels for products with 3 to 128 rows on tensor cores, which read weights once, at memory speed.

The kernels compute the transposed product, [outputs, rows], so that outputs fill a tensor core's rows even if
the input has few rows. Tensor descriptors (TMA) load weights and inputs into shared memory, several blocks
ahead. Sums are float32, added in an order that depends only on the cut, and rounded once. `tiles` launches
the kernels.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def store_tile(
    output,  # [num_rows, num_outputs], dense
    bias,  # [num_outputs]; read if HAS_BIAS
    tile,  # [outputs, rows], float32
    out,  # [outputs]
    row,  # [rows]
    num_outputs,
    num_rows,
    HAS_BIAS: tl.constexpr,
):
    """Add the bias to a tile, round it, and store it, transposed."""
    if HAS_BIAS:
        tile += tl.load(bias + out, mask=out < num_outputs, other=0.0).to(tl.float32)[:, None]
    place = output + row[:, None].to(tl.int64) * num_outputs + out[None, :]
    inside = (row < num_rows)[:, None] & (out < num_outputs)[None, :]
    tl.store(place, tl.trans(tile.to(output.dtype.element_ty)), mask=inside)


@triton.jit
def is_stored(row, num_rows):
    """Return whether a part stores a row. Parts store groups of 8 rows, so that neighbors share an access."""
    return row // 8 * 8 < num_rows


@triton.jit
def join_tile(
    partial,  # [splits, tiles, BLOCK_OUT, BLOCK_ROWS], float32
    bias,
    output,
    tile,
    first_row,
    num_tiles,
    num_splits,
    num_outputs,
    num_rows,
    HAS_BIAS: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    JOIN_ROWS: tl.constexpr,
):
    """Add up the parts of JOIN_ROWS rows of a tile, from the first split to the last, and store them."""
    inner = tl.arange(0, BLOCK_OUT)
    row = first_row + tl.arange(0, JOIN_ROWS)
    place = inner[:, None] * BLOCK_ROWS + row[None, :]
    part_size = BLOCK_OUT * BLOCK_ROWS
    inside = tl.broadcast_to(is_stored(row, num_rows)[None, :], [BLOCK_OUT, JOIN_ROWS])
    total = tl.zeros([BLOCK_OUT, JOIN_ROWS], tl.float32)
    # The loop is unrolled, so that all loads run at once. Loads bypass the L1 cache, which may hold older
    # parts.
    for split in tl.static_range(MAX_SPLITS):
        parts = partial + (split * num_tiles + tile).to(tl.int64) * part_size
        total += tl.load(parts + place, mask=inside & (split < num_splits), other=0.0, cache_modifier=".cg")
    store_tile(output, bias, total, tile * BLOCK_OUT + inner, row, num_outputs, num_rows, HAS_BIAS)


@triton.jit(do_not_specialize=["num_rows", "num_splits", "blocks_of_split"])
def tiles_kernel(
    weight,  # descriptor of [num_outputs, num_inputs], blocks [BLOCK_OUT, BLOCK_IN]
    hidden,  # descriptor of [num_rows, num_inputs], blocks [BLOCK_ROWS, BLOCK_IN]
    bias,  # [num_outputs]; read if HAS_BIAS
    output,  # [num_rows, num_outputs], dense
    partial,  # [num_splits, tiles, BLOCK_OUT, BLOCK_ROWS], float32; used if MAX_SPLITS > 1
    arrived,  # [tiles], int32, zeros before and after the launch; used if JOINS
    num_outputs,
    num_inputs,
    num_rows,  # at most BLOCK_ROWS
    num_splits,  # at most MAX_SPLITS
    blocks_of_split,  # of inputs; the last split may have fewer
    HAS_BIAS: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    JOINS: tl.constexpr,  # whether the program that arrives last adds up the parts of a tile
    BLOCK_OUT: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    JOIN_ROWS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Compute BLOCK_OUT outputs of all rows from a part of the inputs. Grid: (tile of outputs, split of inputs).

    Outside of its tensor, a descriptor reads zeros.
    """
    tile = tl.program_id(0)
    split = tl.program_id(1)
    first_output = tile * BLOCK_OUT
    first_block = split * blocks_of_split
    last_block = tl.minimum(first_block + blocks_of_split, tl.cdiv(num_inputs, BLOCK_IN))
    total = tl.zeros([BLOCK_OUT, BLOCK_ROWS], tl.float32)
    for block in tl.range(first_block, last_block, num_stages=STAGES):
        factor = weight.load([first_output, block * BLOCK_IN])
        x = hidden.load([0, block * BLOCK_IN])
        total = tl.dot(factor, x.T, total, input_precision="ieee")
    inner = tl.arange(0, BLOCK_OUT)
    row = tl.arange(0, BLOCK_ROWS)
    if MAX_SPLITS == 1:
        store_tile(output, bias, total, first_output + inner, row, num_outputs, num_rows, HAS_BIAS)
    else:
        num_tiles = tl.num_programs(0)
        place = (split * num_tiles + tile).to(tl.int64) * (BLOCK_OUT * BLOCK_ROWS)
        place = place + inner[:, None] * BLOCK_ROWS + row[None, :]
        inside = tl.broadcast_to(is_stored(row, num_rows)[None, :], [BLOCK_OUT, BLOCK_ROWS])
        tl.store(partial + place, total, mask=inside)
        if JOINS:
            # Without the barrier, the counter could count a part before all threads have stored their
            # numbers.
            tl.debug_barrier()
            count = tl.atomic_add(arrived + tile, 1, sem="acq_rel", scope="gpu")
            if count == num_splits - 1:
                tl.debug_barrier()
                for first_row in tl.range(0, num_rows, JOIN_ROWS, num_stages=1):
                    join_tile(
                        partial,
                        bias,
                        output,
                        tile,
                        first_row,
                        num_tiles,
                        num_splits,
                        num_outputs,
                        num_rows,
                        HAS_BIAS,
                        MAX_SPLITS,
                        BLOCK_OUT,
                        BLOCK_ROWS,
                        JOIN_ROWS,
                    )
                tl.store(arrived + tile, 0)


@triton.jit(do_not_specialize=["num_tiles", "num_rows", "num_splits"])
def join_kernel(
    partial,  # [num_splits, num_tiles, BLOCK_OUT, BLOCK_ROWS], float32
    bias,  # [num_outputs]; read if HAS_BIAS
    output,  # [num_rows, num_outputs], dense
    num_tiles,
    num_splits,
    num_outputs,
    num_rows,
    HAS_BIAS: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
    BLOCK_OUT: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    JOIN_ROWS: tl.constexpr,
):
    """Add up the parts of a tile. Grid: (tile of outputs, block of rows)."""
    join_tile(
        partial,
        bias,
        output,
        tl.program_id(0),
        tl.program_id(1) * JOIN_ROWS,
        num_tiles,
        num_splits,
        num_outputs,
        num_rows,
        HAS_BIAS,
        MAX_SPLITS,
        BLOCK_OUT,
        BLOCK_ROWS,
        JOIN_ROWS,
    )
