"""Quantizes weights to codes and scales, and dequantizes them.

A weight is `level(code) · scale`, with one scale per group. With 8 bits, the level is the code, an integer
from -127 to 127, and the scale is the smallest that covers the group's largest weight. With 4 bits, there are
16 levels, denser near zero, where most weights are: `u + u³/128` for `u = code - 7.5`, rounded to bfloat16.
Of a few candidate scales, the one with the least squared error is chosen, even if it clips the largest
weights. For a given scale, each weight gets the nearest level.
"""

from __future__ import annotations

import functools

import torch

from .code_format import GROUP, CodeFormat

MOST = 127
FACTORS = (0.8, 0.85, 0.9, 0.95, 1.0, 1.05)
"""Candidate scales for 4 bits, as factors on the scale that covers the group's largest weight."""
REACH = 16
"""The cells of `nearest_levels` cover numbers from -REACH to REACH. The levels range from -10.8 to 10.8."""
CELLS_PER_UNIT = 2
"""In each cell there is at most one border between two levels."""
BLOCK = 1 << 18
"""Number of weights encoded at a time, small enough that intermediate results fit into a core's cache."""


def encode(numbers: torch.Tensor, code_format: CodeFormat) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantize weights; return their codes and scales.

    Args:
        numbers: weights of any float dtype, [..., GROUP].

    Returns:
        The codes, [..., GROUP], and the scales, [...], in bfloat16. 8-bit codes are int8; 4-bit codes are
        uint8, one code (0 to 15) per element.
    """
    flat = numbers.reshape(-1, GROUP)
    each = _encode_int8 if code_format.bits == 8 else _encode_int4
    parts = [each(part.float()) for part in flat.split(BLOCK // GROUP)]
    codes, scales = (torch.cat(list(found)) for found in zip(*parts, strict=True))
    return codes.view(numbers.shape), scales.view(numbers.shape[:-1])


def decode(codes: torch.Tensor, scales: torch.Tensor, code_format: CodeFormat) -> torch.Tensor:
    """Dequantize codes [..., GROUP] with scales [...]; return weights [..., GROUP] in float32, without
    rounding."""
    found = codes.float() if code_format.bits == 8 else levels(codes.device)[codes.int()]
    return found * scales[..., None].float()


def pack_halves(codes: torch.Tensor) -> torch.Tensor:
    """Pack two 4-bit codes per byte, [..., GROUP / 2]. The first half of each group is in the low bits."""
    low, high = codes.split(GROUP // 2, dim=-1)
    packed: torch.Tensor = low | (high << 4)
    return packed


def unpack_halves(packed: torch.Tensor) -> torch.Tensor:
    """Unpack the codes that `pack_halves` packed: [..., GROUP]."""
    return torch.cat((packed & 15, packed >> 4), dim=-1)


@functools.cache
def levels(device: torch.device | None = None) -> torch.Tensor:
    """Return the 16 levels of 4-bit codes, ascending, in float32. bfloat16 represents them exactly, too."""
    u = torch.arange(16, dtype=torch.float32, device=device) - 7.5
    return (u + u**3 / 128).bfloat16().float()


def nearest_levels(numbers: torch.Tensor) -> torch.Tensor:
    """Return the 4-bit code of the level nearest to each number, as int32; for a tie, the lower level's code.

    Looks up how many borders are below a number's cell, and compares the number with the border in the cell. This takes a
    seventh of the time of torch.bucketize, which searches among all borders.

    Args:
        numbers: numbers in float32, of any shape.
    """
    below, inside = _cells(numbers.device)
    flat = numbers.reshape(-1)
    cells = _cell_of(flat).clamp_(0, len(below) - 1)  # NaN has no cell
    return (below.index_select(0, cells) + (flat > inside.index_select(0, cells))).view(numbers.shape)


def _cell_of(numbers: torch.Tensor) -> torch.Tensor:
    return ((numbers + REACH) * CELLS_PER_UNIT).int()


@functools.cache
def _cells(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the number of borders below each cell, in int32, and the border in the cell, or infinity."""
    table = levels(device)
    borders = (table[1:] + table[:-1]) / 2
    cells = torch.arange(2 * REACH * CELLS_PER_UNIT, device=device)
    is_inside = _cell_of(borders) == cells[:, None]
    below = (_cell_of(borders) < cells[:, None]).sum(-1, dtype=torch.int32)
    return below, torch.where(is_inside, borders, torch.inf).amin(-1)


def _encode_int8(numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scales = _rounded_up(numbers.abs().amax(-1) / MOST)
    return (_divided(numbers, scales)).round().to(torch.int8), scales.bfloat16()


def _encode_int4(numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    table = levels(numbers.device)
    reaching = numbers.abs().amax(-1) / table[-1]
    safe = torch.where(reaching > 0, reaching, 1.0)
    best = torch.full_like(reaching, torch.inf)
    codes = torch.empty_like(numbers, dtype=torch.uint8)
    chosen = torch.zeros_like(reaching)
    for factor in FACTORS:
        scales = (reaching * factor).bfloat16().float()
        divided = _divided(numbers, scales)
        tried = nearest_levels(divided)
        # Relative to the covering scale, because squares of small weights would underflow.
        nearest = table.index_select(0, tried.view(-1)).view(divided.shape)
        error = (nearest - divided).square().sum(-1) * (scales / safe).square()
        is_better = error < best
        best = torch.where(is_better, error, best)
        chosen = torch.where(is_better, scales, chosen)
        codes = torch.where(is_better[:, None], tried.to(torch.uint8), codes)
    return codes, chosen.bfloat16()


def _divided(numbers: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Divide weights [n, GROUP] by scales [n]. Groups with a scale of 0, which are all zeros, stay
    unchanged."""
    return numbers / torch.where(scales > 0, scales, 1.0)[:, None]


def _rounded_up(numbers: torch.Tensor) -> torch.Tensor:
    """Round non-negative float32 numbers up to numbers that bfloat16 represents exactly."""
    bits = numbers.view(torch.int32) + 0xFFFF
    return (bits & ~0xFFFF).view(torch.float32)
