"""The Triton kernel that writes a step's keys and values to their slots, in the dtype of the storage.

One launch replaces the two to ten torch operators of `KVStorage.write`. Import this module only if Triton is
installed.

The kernel encodes fp8 with integer operations, because only devices from compute capability 8.9 on can encode
fp8 in hardware. So the codes are bitwise identical on every device, in Triton's interpreter and in torch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from llmfw.core.interfaces.kv_dtype import as_bytes

from .dependent_launch import await_earlier_kernels, launch_next, launches_early

MANTISSAS = {torch.float8_e4m3fn: 3, torch.float8_e5m2: 2}
"""Mantissa bits of the fp8 dtypes, which `encode` writes. Triton converts to all other dtypes itself."""

TILE = 4096
"""Number of key elements that one program writes; it writes about as many value elements."""


@triton.jit
def encode(numbers: tl.tensor, mantissa: tl.constexpr) -> tl.tensor:
    """Encode float32 numbers as fp8 codes, rounded to nearest even. All numbers must be in the fp8 range.

    The input has 8 exponent bits and 23 mantissa bits. The code has `7 - mantissa` exponent bits and
    `mantissa` mantissa bits. Encoding rounds the mantissa and changes the bias of the exponent. If the result
    is subnormal in fp8, the number is instead added to a power of 2, and the lowest bits of the sum are the
    code.
    """
    bias: tl.constexpr = (1 << (6 - mantissa)) - 1
    gone: tl.constexpr = 23 - mantissa
    bits = numbers.to(tl.uint32, bitcast=True)
    size = bits & 0x7FFFFFFF
    rounded = size + ((1 << (gone - 1)) - 1) + ((size >> gone) & 1)
    normal = (rounded - ((127 - bias) << 23)) >> gone
    power: tl.constexpr = (127 + gone + 1 - bias) << 23
    sum = size.to(tl.float32, bitcast=True) + tl.full((1, 1), power, tl.uint32).to(tl.float32, bitcast=True)
    small = sum.to(tl.uint32, bitcast=True) - power
    code = tl.where(size < ((128 - bias) << 23), small, normal)
    return (code | ((bits >> 24) & 0x80)).to(tl.uint8)


@triton.jit
def copy_rows(
    new: tl.tensor,
    stored: tl.tensor,
    tokens: tl.tensor,
    slots: tl.tensor,
    valid: tl.tensor,
    token_stride: tl.tensor,
    head_stride: tl.tensor,
    num_heads: tl.constexpr,
    head_dim: tl.constexpr,
    block_width: tl.constexpr,
    inverse: tl.tensor,
    largest: tl.constexpr,
    mantissa: tl.constexpr,
) -> None:
    """Copy all heads of a tile of tokens to their slots.

    Args:
        inverse: factor applied before storing, the inverse of the stored numbers' scale.
        largest: largest number that the storage can hold, to which numbers are clamped; 0: no clamping.
        mantissa: mantissa bits of the storage's fp8 dtype; 0: not fp8.
    """
    places = tl.arange(0, block_width)
    held = valid[:, None] & (places < num_heads * head_dim)[None, :]
    inside = places // head_dim * head_stride + places % head_dim
    row = tl.load(new + tokens[:, None] * token_stride + inside[None, :], mask=held)
    at = stored + slots[:, None] * (num_heads * head_dim) + places[None, :]
    if largest > 0:
        row = tl.clamp(row.to(tl.float32) * inverse, -largest, largest)
    if mantissa > 0:
        row = encode(row, mantissa)
    tl.store(at, row.to(stored.dtype.element_ty), mask=held)


@triton.jit(do_not_specialize=["num_tokens"])
def write_kernel(
    key: tl.tensor,
    value: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    slots: tl.tensor,
    num_tokens: tl.tensor,
    key_token_stride: tl.tensor,
    key_head_stride: tl.tensor,
    value_token_stride: tl.tensor,
    value_head_stride: tl.tensor,
    num_heads: tl.constexpr,
    head_dim: tl.constexpr,
    v_head_dim: tl.constexpr,
    block_tokens: tl.constexpr,
    block_width: tl.constexpr,
    block_v_width: tl.constexpr,
    key_inverse: tl.tensor,
    value_inverse: tl.tensor,
    largest: tl.constexpr,
    mantissa: tl.constexpr,
    launch_pdl: tl.constexpr,
) -> None:
    """Write the keys and values of one tile of tokens. Grid: (tile,)."""
    launch_next(launch_pdl)
    await_earlier_kernels(launch_pdl)
    tokens = tl.program_id(0).to(tl.int64) * block_tokens + tl.arange(0, block_tokens)
    valid = tokens < num_tokens
    to = tl.load(slots + tokens, mask=valid, other=0).to(tl.int64)
    copy_rows(
        key,
        keys,
        tokens,
        to,
        valid,
        key_token_stride,
        key_head_stride,
        num_heads,
        head_dim,
        block_width,
        key_inverse,
        largest,
        mantissa,
    )
    copy_rows(
        value,
        values,
        tokens,
        to,
        valid,
        value_token_stride,
        value_head_stride,
        num_heads,
        v_head_dim,
        block_v_width,
        value_inverse,
        largest,
        mantissa,
    )


def write(
    key: torch.Tensor,
    value: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    slots: torch.Tensor,
    scales: tuple[float, float] = (1.0, 1.0),
) -> None:
    """Write keys and values of T tokens to their slots.

    Args:
        key: [T, Hkv, D], the last dimension contiguous.
        value: [T, Hkv, Dv], the last dimension contiguous.
        keys: storage of keys: [pages, page_size, Hkv, D], contiguous; dtype of `key`, or fp8, float16 or
            wider.
        values: storage of values: [pages, page_size, Hkv, Dv], contiguous; dtype of `keys`.
        slots: slot of each token: [T], integers.
        scales: factors by which readers multiply the stored keys and values.
    """
    stored_as = keys.dtype
    # Numbers beyond the storage's range are clamped to `largest`; 0: all numbers are in range.
    largest = 0.0 if key.dtype == stored_as else torch.finfo(stored_as).max
    mantissa = MANTISSAS.get(stored_as, 0)
    keys, values = as_bytes(keys), as_bytes(values)
    num_heads, head_dim, v_head_dim = keys.shape[2], keys.shape[3], values.shape[3]
    block_width = triton.next_power_of_2(num_heads * head_dim)
    block_tokens = max(1, TILE // block_width)
    write_kernel[(-(-len(slots) // block_tokens),)](
        key,
        value,
        keys,
        values,
        slots,
        len(slots),
        key.stride(0),
        key.stride(1),
        value.stride(0),
        value.stride(1),
        num_heads=num_heads,
        head_dim=head_dim,
        v_head_dim=v_head_dim,
        block_tokens=block_tokens,
        block_width=block_width,
        block_v_width=triton.next_power_of_2(num_heads * v_head_dim),
        key_inverse=1.0 / scales[0],
        value_inverse=1.0 / scales[1],
        largest=largest,
        mantissa=mantissa,
        launch_pdl=launches_early(key.device),
        num_warps=4,
    )
