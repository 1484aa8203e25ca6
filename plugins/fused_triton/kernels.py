"""The Triton kernels: RMS norm, SwiGLU, rotary embedding, and linear layers of few rows.

Each reads and writes a row once and computes in float32. The kernels round at the same points as
transformers' modules: to the tensors' dtype after each operation that creates a tensor in transformers. So
results differ from transformers' results only by the order in which squares are added, and by the last bit of
exp and rsqrt. A linear layer rounds its sum once. Strides are in elements. `ops` and `few_rows` launch the
kernels.
"""

from __future__ import annotations

import triton
import triton.language as tl

from llmfw.core.kernels.dependent_launch import await_earlier_kernels, launch_next, loaded


# The number of rows changes from step to step. Specializing for 1 or multiples of 16 would recompile during a
# step.
@triton.jit(do_not_specialize=["num_rows"])
def rms_norm_kernel(
    hidden,  # [rows, width], rows hidden_stride apart
    residual,  # [rows, width], dense; read if ADDS
    weight,  # [width]
    total,  # [rows, width], dense; hidden + residual, written if ADDS
    output,  # [rows, width], dense
    num_rows,
    width,
    hidden_stride,
    eps,
    ADDS: tl.constexpr,
    FROM_ONE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    launch_pdl: tl.constexpr,
):
    """Compute the RMS norm of each row, multiplied by the weight. If ADDS, first add the residual to the row.

    If FROM_ONE, as in Gemma, the factor is weight + 1.
    """
    launch_next(launch_pdl)
    row = (tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)).to(tl.int64)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < num_rows) & (column < width)
    dense = row * width + column
    factor = tl.load(weight + column, mask=column < width, other=0.0)
    await_earlier_kernels(launch_pdl)
    factor = loaded(factor, launch_pdl).to(tl.float32)
    given = tl.load(hidden + row * hidden_stride + column, mask=inside, other=0.0)
    x = given.to(tl.float32)
    if ADDS:
        summed = (x + tl.load(residual + dense, mask=inside, other=0.0).to(tl.float32)).to(given.dtype)
        tl.store(total + dense, summed, mask=inside)
        x = summed.to(tl.float32)
    mean = tl.sum(x * x, axis=1)[:, None] / width
    x = x * tl.rsqrt(mean + eps)
    if FROM_ONE:
        x = x * (1.0 + factor)
    else:
        x = x.to(given.dtype).to(tl.float32) * factor
    tl.store(output + dense, x.to(output.dtype.element_ty), mask=inside)


@triton.jit
def silu_mul_kernel(
    gate,  # [rows, width], rows gate_stride apart
    up,  # [rows, width], rows up_stride apart
    output,  # [rows, width], dense
    width,
    gate_stride,
    up_stride,
    BLOCK: tl.constexpr,
    launch_pdl: tl.constexpr,
):
    """Compute silu(gate) · up. A program computes BLOCK columns of one row."""
    launch_next(launch_pdl)
    await_earlier_kernels(launch_pdl)
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    given = tl.load(gate + row * gate_stride + column, mask=inside, other=0.0)
    x = given.to(tl.float32)
    active = (x / (1.0 + tl.exp(-x))).to(given.dtype).to(tl.float32)
    factor = tl.load(up + row * up_stride + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(output + row * width + column, (active * factor).to(given.dtype), mask=inside)


@triton.jit
def rotate_heads(
    x,  # [heads, 2 * HALF] of one token, heads head_stride apart
    weight,  # [2 * HALF]; read if NORMS
    output,  # [heads, 2 * HALF], dense
    cos,  # [2 * HALF] of the token's position
    sin,
    first_head,
    num_heads,
    head_stride,
    eps,
    NORMS: tl.constexpr,
    FROM_ONE: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
):
    """Apply the rotary embedding to BLOCK_HEADS heads of one token; if NORMS, normalize each head first."""
    head = (first_head + tl.arange(0, BLOCK_HEADS))[:, None]
    low_column = tl.arange(0, BLOCK_HALF)[None, :]
    exists = low_column < HALF
    inside = (head < num_heads) & exists
    high_column = low_column + HALF
    given = tl.load(x + head * head_stride + low_column, mask=inside, other=0.0)
    low = given.to(tl.float32)
    high = tl.load(x + head * head_stride + high_column, mask=inside, other=0.0).to(tl.float32)
    if NORMS:
        squares = tl.sum(low * low, axis=1) + tl.sum(high * high, axis=1)
        scale = tl.rsqrt(squares / (2 * HALF) + eps)[:, None]
        low_factor = tl.load(weight + low_column, mask=exists, other=0.0).to(tl.float32)
        high_factor = tl.load(weight + high_column, mask=exists, other=0.0).to(tl.float32)
        low *= scale
        high *= scale
        if FROM_ONE:
            low_factor += 1.0
            high_factor += 1.0
        else:
            low = low.to(given.dtype).to(tl.float32)
            high = high.to(given.dtype).to(tl.float32)
        low = (low * low_factor).to(given.dtype).to(tl.float32)
        high = (high * high_factor).to(given.dtype).to(tl.float32)
    cos_low = tl.load(cos + low_column, mask=exists, other=0.0).to(tl.float32)
    cos_high = tl.load(cos + high_column, mask=exists, other=0.0).to(tl.float32)
    sin_low = tl.load(sin + low_column, mask=exists, other=0.0).to(tl.float32)
    sin_high = tl.load(sin + high_column, mask=exists, other=0.0).to(tl.float32)
    low_kept = (low * cos_low).to(given.dtype).to(tl.float32)
    low_turned = (high * sin_low).to(given.dtype).to(tl.float32)
    high_kept = (high * cos_high).to(given.dtype).to(tl.float32)
    high_turned = (low * sin_high).to(given.dtype).to(tl.float32)
    place = output + head * (2 * HALF)
    tl.store(place + low_column, (low_kept - low_turned).to(given.dtype), mask=inside)
    tl.store(place + high_column, (high_kept + high_turned).to(given.dtype), mask=inside)


@triton.jit
def rope_kernel(
    query,  # [rows, query heads, 2 * HALF]
    key,  # [rows, KV heads, 2 * HALF]
    query_weight,  # [2 * HALF]; read if NORMS
    key_weight,
    query_output,  # as query, dense
    key_output,  # as key, dense
    cos,  # [rows, 2 * HALF], rows cos_stride apart
    sin,
    num_query_heads,
    num_key_heads,
    query_stride,
    query_head_stride,
    key_stride,
    key_head_stride,
    cos_stride,
    sin_stride,
    query_eps,
    key_eps,
    NORMS: tl.constexpr,
    FROM_ONE: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
    launch_pdl: tl.constexpr,
):
    """Apply the rotary embedding to a token's queries and keys. Grid: (token, group of BLOCK_HEADS heads).

    The groups of query heads come first, then those of key heads.
    """
    launch_next(launch_pdl)
    await_earlier_kernels(launch_pdl)
    row = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1)
    num_query_groups = tl.cdiv(num_query_heads, BLOCK_HEADS)
    if group < num_query_groups:
        rotate_heads(
            query + row * query_stride,
            query_weight,
            query_output + row * num_query_heads * (2 * HALF),
            cos + row * cos_stride,
            sin + row * sin_stride,
            group * BLOCK_HEADS,
            num_query_heads,
            query_head_stride,
            query_eps,
            NORMS,
            FROM_ONE,
            HALF,
            BLOCK_HEADS,
            BLOCK_HALF,
        )
    else:
        rotate_heads(
            key + row * key_stride,
            key_weight,
            key_output + row * num_key_heads * (2 * HALF),
            cos + row * cos_stride,
            sin + row * sin_stride,
            (group - num_query_groups) * BLOCK_HEADS,
            num_key_heads,
            key_head_stride,
            key_eps,
            NORMS,
            FROM_ONE,
            HALF,
            BLOCK_HEADS,
            BLOCK_HALF,
        )


@triton.jit
def load_weights(
    weights,  # [1, 1, outputs, 1], pointers
    column,  # [groups, 1, 1, 8]
    num_inputs,
    IS_EVEN: tl.constexpr,
):
    """Return the weights of groups of 8 inputs, [groups, 1, outputs, 8].

    Each weight is read only once, so caches evict it first.
    """
    if IS_EVEN:
        return tl.load(weights + column, eviction_policy="evict_first")
    return tl.load(weights + column, mask=column < num_inputs, other=0.0, eviction_policy="evict_first")


@triton.jit
def sum_products(
    inputs,  # [1, rows, 1, 1], pointers
    factor,  # [groups, 1, outputs, 8]
    column,  # [groups, 1, 1, 8]
    num_inputs,
    IS_EVEN: tl.constexpr,
):
    """Return the sum of each group of 8 products, float32: [groups, rows, outputs]."""
    if IS_EVEN:
        x = tl.load(inputs + column)
    else:
        x = tl.load(inputs + column, mask=column < num_inputs, other=0.0)
    return tl.sum(x.to(tl.float32) * factor.to(tl.float32), axis=3)


@triton.jit
def linear_kernel(
    hidden,  # [ROWS, num_inputs], dense, 16-byte aligned
    weight,  # [num_outputs, num_inputs], dense, 16-byte aligned
    bias,  # [num_outputs]; read if HAS_BIAS
    output,  # [ROWS, num_outputs], dense
    num_outputs,
    num_inputs,  # a multiple of 16
    HAS_BIAS: tl.constexpr,
    ROWS: tl.constexpr,
    PADDED_ROWS: tl.constexpr,  # ROWS, rounded up to a power of 2
    IS_EVEN: tl.constexpr,  # whether BLOCK_IN divides num_inputs
    BLOCK_OUT: tl.constexpr,
    BLOCK_IN: tl.constexpr,
    STAGES: tl.constexpr,
    launch_pdl: tl.constexpr,
):
    """Compute BLOCK_OUT outputs of all rows: hidden · weightᵀ + bias. Grid: (block of outputs,).

    A thread reads 8 neighboring inputs at a time: the same columns of every row and of every output's
    weights. So threads exchange nothing until all inputs are read. The order in which a row's products are
    added does not depend on other rows, or on their number.
    """
    launch_next(launch_pdl)
    # The dimensions are groups of inputs (one per thread), rows, outputs, and the inputs of a group. All
    # loads have these four dimensions, with the groups first, because Triton then gives each load the same
    # layout: neighboring threads have neighboring groups. So the loop needs no conversions through shared
    # memory.
    place = tl.arange(0, BLOCK_IN // 8)[:, None, None, None] * 8 + tl.arange(0, 8)[None, None, None, :]
    row = tl.arange(0, PADDED_ROWS)
    first_output = tl.program_id(0) * BLOCK_OUT
    # Rows and outputs beyond the last are computed as copies of the last, and are not stored.
    out = tl.minimum(first_output + tl.arange(0, BLOCK_OUT), num_outputs - 1)
    weights = weight + out.to(tl.int64)[None, None, :, None] * num_inputs
    inputs = hidden + tl.minimum(row, ROWS - 1)[None, :, None, None] * num_inputs
    # Load the first weights while earlier kernels still run.
    factor = load_weights(weights, place, num_inputs, IS_EVEN)
    await_earlier_kernels(launch_pdl)
    factor = loaded(factor, launch_pdl)
    sums = sum_products(inputs, factor, place, num_inputs, IS_EVEN)
    for first in tl.range(BLOCK_IN, num_inputs, BLOCK_IN, num_stages=STAGES):
        factor = load_weights(weights, first + place, num_inputs, IS_EVEN)
        sums += sum_products(inputs, factor, first + place, num_inputs, IS_EVEN)
    total = tl.sum(sums, axis=0)
    if HAS_BIAS:
        total += tl.load(bias + out).to(tl.float32)[None, :]
    stored_row = row[:, None]
    stored_out = (first_output + tl.arange(0, BLOCK_OUT))[None, :]
    tl.store(
        output + stored_row * num_outputs + stored_out,
        total.to(output.dtype.element_ty),
        mask=(stored_row < ROWS) & (stored_out < num_outputs),
    )
