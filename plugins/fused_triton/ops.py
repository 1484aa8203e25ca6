"""The kernels as functions of tensors.

Results are new, dense tensors. Inputs are never overwritten, because other code may read the residuals, or
other columns of merged projections. This costs no memory traffic: a kernel reads and writes each number once
in either case.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton

from llmfw.core.kernels.dependent_launch import launches_early

from .kernels import rms_norm_kernel, rope_kernel, silu_mul_kernel

MAX_WIDTH = 16384
"""Widest row whose norm fits into one program's registers."""

SILU_BLOCK = 1024
SILU_WARPS = 4
ROPE_HEADS = 8
ROPE_WARPS = 4


class NormShape(NamedTuple):
    """How rows are distributed over programs: about 16 numbers per thread."""

    block_rows: int
    block: int
    num_warps: int


class HeadNorm(NamedTuple):
    """An RMS norm: weight [width], to which 1 is added if `from_one`, and eps."""

    weight: torch.Tensor
    eps: float
    from_one: bool


def norm_shape(width: int) -> NormShape:
    """Return how rows of this width are distributed over programs: several short rows per program."""
    block = triton.next_power_of_2(width)
    block_rows = max(1, 1024 // block)
    return NormShape(block_rows, block, min(16, max(1, block_rows * block // 512)))


def rms_norm(hidden: torch.Tensor, weight: torch.Tensor, eps: float, from_one: bool) -> torch.Tensor:
    """Return the RMS norm of `hidden`, multiplied by the weight, or by weight + 1 if `from_one`.

    Args:
        hidden: [..., width].
        weight: [width].
        eps: number that is added to the mean of the squares.
        from_one: whether the factor is weight + 1, as in Gemma.
    """
    return _rms_norm(hidden, None, weight, eps, from_one)[1]


def add_rms_norm(
    hidden: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float, from_one: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return hidden + residual, [..., width], and the RMS norm of this sum."""
    return _rms_norm(hidden, residual, weight, eps, from_one)


def _rms_norm(
    hidden: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float, from_one: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    width = hidden.shape[-1]
    rows = _rows(hidden)
    dtype = hidden.dtype if from_one else torch.promote_types(hidden.dtype, weight.dtype)
    output = torch.empty(hidden.shape, dtype=dtype, device=hidden.device)
    total = (
        hidden if residual is None else torch.empty(hidden.shape, dtype=hidden.dtype, device=hidden.device)
    )
    shape = norm_shape(width)
    if len(rows):
        with torch.cuda.device_of(hidden):
            rms_norm_kernel[(triton.cdiv(len(rows), shape.block_rows),)](
                rows,
                rows if residual is None else residual.contiguous(),
                weight,
                total,
                output,
                len(rows),
                width,
                rows.stride(0),
                eps,
                ADDS=residual is not None,
                FROM_ONE=from_one,
                BLOCK_ROWS=shape.block_rows,
                BLOCK=shape.block,
                launch_pdl=launches_early(hidden.device),
                num_warps=shape.num_warps,
            )
    return total, output


def silu_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Return silu(gate) · up, both [..., width]; their rows may be slices of longer rows."""
    width = gate.shape[-1]
    gates, ups = _rows(gate), _rows(up)
    output = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    if len(gates):
        with torch.cuda.device_of(gate):
            silu_mul_kernel[(len(gates), triton.cdiv(width, SILU_BLOCK))](
                gates,
                ups,
                output,
                width,
                gates.stride(0),
                ups.stride(0),
                BLOCK=SILU_BLOCK,
                launch_pdl=launches_early(gate.device),
                num_warps=SILU_WARPS,
            )
    return output


def rotate(
    query: torch.Tensor,
    key: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    norms: tuple[HeadNorm, HeadNorm] | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return queries [..., heads, head_dim] and keys [..., KV heads, head_dim] with rotary embedding.

    Args:
        query, key: may be slices of longer rows.
        cos, sin: cosines and sines for the tokens' positions: [..., head_dim].
        norms: norms of the query heads and of the key heads, which are applied before the rotation. Both have
            the same `from_one`. None: no norms.
    """
    *lead, num_heads, head_dim = query.shape
    num_kv_heads = key.shape[-2]
    queries, keys = query.flatten(0, -3), key.flatten(0, -3)
    cosines, sines = (_rows(table.expand(*lead, head_dim)) for table in (cos, sin))
    rotated = tuple(torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (query, key))
    first, second = norms or (HeadNorm(query, 0.0, False), HeadNorm(key, 0.0, False))
    groups = triton.cdiv(num_heads, ROPE_HEADS) + triton.cdiv(num_kv_heads, ROPE_HEADS)
    if len(queries):
        with torch.cuda.device_of(query):
            rope_kernel[(len(queries), groups)](
                queries,
                keys,
                first.weight,
                second.weight,
                *rotated,
                cosines,
                sines,
                num_heads,
                num_kv_heads,
                *queries.stride()[:2],
                *keys.stride()[:2],
                cosines.stride(0),
                sines.stride(0),
                first.eps,
                second.eps,
                NORMS=norms is not None,
                FROM_ONE=first.from_one,
                HALF=head_dim // 2,
                BLOCK_HEADS=ROPE_HEADS,
                BLOCK_HALF=triton.next_power_of_2(head_dim // 2),
                launch_pdl=launches_early(query.device),
                num_warps=ROPE_WARPS,
            )
    return rotated[0], rotated[1]


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    """Return [..., width] as [rows, width] with dense columns.

    Copies only if there is no single row stride.
    """
    rows = tensor.reshape(-1, tensor.shape[-1])
    return rows if rows.stride(-1) == 1 else rows.contiguous()
