"""Encodes numbers as codes and scales, and decodes them.

A group's numbers are `level(code) · scale`. In eight bits a level is the code, a whole number from -127 to 127, and the
scale is the least that reaches the group's largest number. In four bits there are sixteen levels, closer to each other
near zero, where most weights are: `u + u³/128` for `u = code - 7.5`, rounded to bfloat16. Their scale is the one of a
few candidates that leaves the least squared error; the largest numbers may be cut for it. Every code is the nearest one
for its scale.
"""

from __future__ import annotations

import functools

import torch

from .schemes import GROUP, Scheme

MOST = 127
FACTORS = (0.8, 0.85, 0.9, 0.95, 1.0, 1.05)
"""Candidate scales in four bits, as factors on the scale that reaches the largest number."""
BLOCK = 1 << 18
"""Numbers encoded at a time, few enough that intermediate results fit into a core's cache."""


def encode(numbers: torch.Tensor, scheme: Scheme) -> tuple[torch.Tensor, torch.Tensor]:
    """Return codes and scales of numbers.

    Args:
        numbers: [..., GROUP], floats.

    Returns:
        Codes of the shape of `numbers`, int8 for eight bits, uint8 below 16 for four; scales [...] in bfloat16.
    """
    flat = numbers.reshape(-1, GROUP)
    each = _encode_int8 if scheme.bits == 8 else _encode_int4
    parts = [each(part.float()) for part in flat.split(BLOCK // GROUP)]
    codes, scales = (torch.cat(list(found)) for found in zip(*parts, strict=True))
    return codes.view(numbers.shape), scales.view(numbers.shape[:-1])


def decode(codes: torch.Tensor, scales: torch.Tensor, scheme: Scheme) -> torch.Tensor:
    """Return the exact numbers [..., GROUP], in float32, of codes [..., GROUP] and scales [...]."""
    found = codes.float() if scheme.bits == 8 else levels(codes.device)[codes.int()]
    return found * scales[..., None].float()


def pack_halves(codes: torch.Tensor) -> torch.Tensor:
    """Return two codes per byte, [..., GROUP / 2], with a group's first half in the lower four bits."""
    low, high = codes.split(GROUP // 2, dim=-1)
    packed: torch.Tensor = low | (high << 4)
    return packed


def unpack_halves(packed: torch.Tensor) -> torch.Tensor:
    """Undo `pack_halves`."""
    return torch.cat((packed & 15, packed >> 4), dim=-1)


@functools.cache
def levels(device: torch.device | None = None) -> torch.Tensor:
    """Return the sixteen levels of four-bit codes, ascending, in float32; bfloat16 holds them exactly, too."""
    u = torch.arange(16, device=device) - 7.5
    return (u + u**3 / 128).bfloat16().float()


def _encode_int8(numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scales = _rounded_up(numbers.abs().amax(-1) / MOST)
    return (_divided(numbers, scales)).round().to(torch.int8), scales.bfloat16()


def _encode_int4(numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    table = levels(numbers.device)
    borders = (table[1:] + table[:-1]) / 2
    reaching = numbers.abs().amax(-1) / table[-1]
    safe = torch.where(reaching > 0, reaching, 1.0)
    best = torch.full_like(reaching, torch.inf)
    codes = torch.empty_like(numbers, dtype=torch.uint8)
    chosen = torch.zeros_like(reaching)
    for factor in FACTORS:
        scales = (reaching * factor).bfloat16().float()
        divided = _divided(numbers, scales)
        tried = torch.bucketize(divided, borders, out_int32=True)
        # Times the scale over the reaching one: squares of small weights would be none.
        error = (table[tried] - divided).square().sum(-1) * (scales / safe).square()
        is_better = error < best
        best = torch.where(is_better, error, best)
        chosen = torch.where(is_better, scales, chosen)
        codes = torch.where(is_better[:, None], tried.to(torch.uint8), codes)
    return codes, chosen.bfloat16()


def _divided(numbers: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Return numbers [n, GROUP] divided by scales [n]. If a scale is 0, all numbers of its group are 0, and the divisor
    is 1."""
    return numbers / torch.where(scales > 0, scales, 1.0)[:, None]


def _rounded_up(numbers: torch.Tensor) -> torch.Tensor:
    """Return the next larger bfloat16 number for non-negative float32 numbers."""
    bits = numbers.view(torch.int32) + 0xFFFF
    return (bits & ~0xFFFF).view(torch.float32)
