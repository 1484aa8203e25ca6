"""Unpacks codes of a few bits from 32-bit integers."""

from __future__ import annotations

import torch

WORD = 32


def unpack_rows(packed: torch.Tensor, bits: int) -> torch.Tensor:
    """Unpack int32 [rows, columns] to codes in uint8, [rows * 32 / bits, columns].

    A word has codes of consecutive rows, the first one in its lowest bits.
    """
    words = packed[:, None, :] >> _shifts(bits)[None, :, None]
    return (words & _mask(bits)).to(torch.uint8).reshape(-1, packed.shape[1])


def unpack_columns(packed: torch.Tensor, bits: int) -> torch.Tensor:
    """Unpack int32 [rows, columns] to codes in uint8, [rows, columns * 32 / bits].

    A word has codes of consecutive columns, the first one in its lowest bits.
    """
    words = packed[:, :, None] >> _shifts(bits)
    return (words & _mask(bits)).to(torch.uint8).reshape(packed.shape[0], -1)


def _shifts(bits: int) -> torch.Tensor:
    return torch.arange(0, WORD, bits, dtype=torch.int32)


def _mask(bits: int) -> int:
    return (1 << bits) - 1
