"""The kernel that writes a step's keys and values to their slots."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILE = 4096
"""Numbers of keys, and about as many of values, that one program writes."""


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
) -> None:
    """Copy a tile of tokens, all heads."""
    places = tl.arange(0, block_width)
    held = valid[:, None] & (places < num_heads * head_dim)[None, :]
    inside = places // head_dim * head_stride + places % head_dim
    row = tl.load(new + tokens[:, None] * token_stride + inside[None, :], mask=held)
    at = stored + slots[:, None] * (num_heads * head_dim) + places[None, :]
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
) -> None:
    """Write a few tokens: program (tile of tokens,)."""
    tokens = tl.program_id(0).to(tl.int64) * block_tokens + tl.arange(0, block_tokens)
    valid = tokens < num_tokens
    to = tl.load(slots + tokens, mask=valid, other=0).to(tl.int64)
    copy_rows(
        key, keys, tokens, to, valid, key_token_stride, key_head_stride, num_heads, head_dim, block_width
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
    )


def write(
    key: torch.Tensor,
    value: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """Write keys and values of T tokens to their slots.

    Args:
        key: [T, Hkv, D], the last dimension contiguous, as in `value`.
        value: [T, Hkv, Dv].
        keys: [pages, page_size, Hkv, D], contiguous; of any dtype that Triton converts to.
        values: [pages, page_size, Hkv, Dv].
        slots: [T], integers.
    """
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
        num_warps=4,
    )
