"""Launches the sampling kernels.

Nothing waits for the device, and no launch depends on the data. In bytes, for S rows of V float32 logits, where
c is the share of tokens that are candidates after two passes (less than 5 % for normally distributed logits, and
less for a language model's):

    kernel      reads                      writes
    summarize   4 SV                       8 S V / CHUNK
    points      4 SV, twice                32 integer atomics a chunk
    candidates  4 SV                       8 c SV
    finish      8 c SV, about 15 times     8 S
                from the cache
    in all      16 SV: 1.03 GB for 500 rows of 128,256, of which rows that fit the cache are read once

    unfiltered  4 SV, and 4 CHUNK a row    8 S V / CHUNK

Up to 100 rows of 128,256 logits are as large as an H100's L2 cache.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton

from llmfw.core import RowNumbers

from .kernels.finish import finish_kernel
from .kernels.points import candidates_kernel, points_kernel
from .kernels.rows import ROW_WORDS, summarize_kernel
from .kernels.unfiltered import unfiltered_kernel

CHUNK = 4096
"""Tokens of a program: 32 programs for a row of 128,256. The sum of a row's softmax depends on it."""

CHUNK_WARPS = 4
BLOCK = 1024
"""Candidates that `finish` loads at once."""

FINISH_WARPS = 8
FINISH_REGISTERS = 128
"""Limit for a thread. Without one, the compiler aims at fewer registers and spills."""


class Rows(NamedTuple):
    """Rows of logits, and what `summarize` finds out about their softmax.

    Attributes:
        logits: logits, with dense rows: [S, vocab].
        temperature: divisor of each row: [S].
        largest, total: maximum and sum of each chunk's softmax: [S, chunks].
        records: further integers of each row: [S, ROW_WORDS].
    """

    logits: torch.Tensor
    temperature: torch.Tensor
    largest: torch.Tensor
    total: torch.Tensor
    records: torch.Tensor

    @property
    def num_chunks(self) -> int:
        """Number of chunks of a row."""
        return self.largest.shape[1]


def sample_all(logits: torch.Tensor, numbers: RowNumbers, chunk: int = CHUNK) -> torch.Tensor:
    """Sample from all tokens; return token ids: [S].

    Args:
        logits: logits: [S, vocab].
        numbers: parameters of the rows.
        chunk: tokens of a program, a power of two.
    """
    tokens = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
    if not len(logits):
        return tokens
    with torch.cuda.device_of(logits):
        rows = _summarize(logits, numbers, chunk)
        unfiltered_kernel[(len(logits),)](
            rows.logits,
            rows.temperature,
            numbers.draws.contiguous(),
            rows.largest,
            rows.total,
            tokens,
            logits.shape[1],
            rows.logits.stride(0),
            rows.num_chunks,
            **_sizes(rows, chunk),
        )
    return tokens


def sample_selected(
    logits: torch.Tensor, numbers: RowNumbers, has_top_k: bool, chunk: int = CHUNK
) -> torch.Tensor:
    """Sample from the tokens that pass top_k, then top_p, then min_p; return token ids: [S].

    Args:
        logits: logits: [S, vocab].
        numbers: parameters of the rows.
        has_top_k: whether a row's top_k is less than the size of the vocabulary.
        chunk: tokens of a program, a power of two.
    """
    num_rows, vocab_size = logits.shape
    tokens = torch.empty(num_rows, dtype=torch.int64, device=logits.device)
    if not num_rows:
        return tokens
    draws, _, top_k, top_p, min_p = (column.contiguous() for column in numbers)
    keys, ids = (torch.empty(num_rows, vocab_size, dtype=torch.int32, device=logits.device) for _ in range(2))
    grid = (num_rows, triton.cdiv(vocab_size, chunk))
    with torch.cuda.device_of(logits):
        rows = _summarize(logits, numbers, chunk)
        shape = (vocab_size, rows.logits.stride(0), rows.num_chunks)
        common = _sizes(rows, chunk) | {"HAS_TOP_K": has_top_k}
        read = (rows.logits, rows.temperature, draws, top_k, top_p)
        found = (rows.largest, rows.total, rows.records)
        for is_first in (True, False):
            points_kernel[grid](*read, min_p, *found, *shape, IS_FIRST=is_first, **common)
        candidates_kernel[grid](*read, *found, keys, ids, *shape, **common)
        finish_kernel[(num_rows,)](
            draws,
            top_k,
            top_p,
            *found,
            keys,
            ids,
            tokens,
            vocab_size,
            rows.num_chunks,
            HAS_TOP_K=has_top_k,
            CHUNKS=common["CHUNKS"],
            BLOCK=BLOCK,
            num_warps=FINISH_WARPS,
            maxnreg=FINISH_REGISTERS,
            enable_fp_fusion=False,
        )
    return tokens


def _summarize(logits: torch.Tensor, numbers: RowNumbers, chunk: int) -> Rows:
    num_rows, vocab_size = logits.shape
    num_chunks = triton.cdiv(vocab_size, chunk)
    largest, total = (
        torch.empty(num_rows, num_chunks, dtype=torch.float32, device=logits.device) for _ in range(2)
    )
    records = torch.empty(num_rows, ROW_WORDS.value, dtype=torch.int32, device=logits.device)
    dense = logits if logits.stride(1) == 1 else logits.contiguous()
    rows = Rows(dense, numbers.temperature.contiguous(), largest, total, records)
    sizes = _sizes(rows, chunk)
    del sizes["CHUNKS"]
    summarize_kernel[(num_rows, num_chunks)](*rows, vocab_size, dense.stride(0), num_chunks, **sizes)
    return rows


def _sizes(rows: Rows, chunk: int) -> dict[str, int | bool]:
    """Return the constants of kernels that read chunks, and how to compile these kernels."""
    return {
        "CHUNK": chunk,
        "CHUNKS": triton.next_power_of_2(rows.num_chunks),
        "num_warps": CHUNK_WARPS,
        "enable_fp_fusion": False,
    }
