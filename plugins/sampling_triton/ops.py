"""Launches the sampling kernels.

Does not wait for the device, and no launch depends on the data. The kernels read and write these bytes, for S
rows of V float32 logits, if a share c of the tokens are candidates:

    kernel      reads                                       writes
    summarize   4 SV                                        8 SV / CHUNK
    pivots      a sector of 32 for each sampled token,      512 S
                at most 32 · SAMPLE · S
    points      4 SV                                        18 integers a chunk, by atomic additions
    candidates  4 SV                                        8 c SV
    finish      4 c SV about 12 times, from the cache       8 S
    in all      12 SV from memory: 0.77 GB for 500 rows of 128,256

    unfiltered  4 CHUNK · S, after summarize                8 S

For top_p 0.9 and normally distributed logits with standard deviations of 0.1 and 1, c is 4 % on average, and
0.05 % for a top_k of 50. Its worst case is 1, if all tokens are equally likely.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton

from llmfw.core import RowNumbers

from .kernels.finish import finish_kernel
from .kernels.pivots import pivots_kernel
from .kernels.points import candidates_kernel, points_kernel
from .kernels.rows import ROW_WORDS, summarize_kernel
from .kernels.unfiltered import unfiltered_kernel

CHUNK = 4096
"""Tokens of a program: 32 programs for a row of 128,256. The sum of a row's softmax depends on it."""

CHUNK_WARPS = 4
BLOCK = 1024
"""Candidates that `finish` loads at once."""

SAMPLE = 1024
"""Tokens sampled from a row to choose its points."""

ROW_WARPS = 8
ROW_REGISTERS = 128
"""Maximum number of registers per thread. Without a limit, the compiler uses fewer registers and spills."""


class Rows(NamedTuple):
    """Rows of logits, and the results of `summarize` for their softmax.

    Attributes:
        logits: logits, with dense rows: [S, vocab].
        temperature: divisor of each row: [S].
        largest, total: maximum and sum of each chunk for the softmax: [S, chunks].
    """

    logits: torch.Tensor
    temperature: torch.Tensor
    largest: torch.Tensor
    total: torch.Tensor

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
            CHUNK=chunk,
            CHUNKS=triton.next_power_of_2(rows.num_chunks),
            num_warps=CHUNK_WARPS,
            enable_fp_fusion=False,
        )
    return tokens


def sample_selected(
    logits: torch.Tensor, numbers: RowNumbers, has_top_k: bool, chunk: int = CHUNK
) -> torch.Tensor:
    """Sample from the tokens that pass top_k, then top_p, then min_p; return token ids: [S].

    Args:
        logits: logits: [S, vocab].
        numbers: parameters of the rows.
        has_top_k: whether any row's top_k is less than the size of the vocabulary.
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
        records = torch.empty(num_rows, ROW_WORDS.value, dtype=torch.int32, device=logits.device)
        own = (draws, top_k, top_p)
        width = (vocab_size, rows.logits.stride(0))
        launch = {"HAS_TOP_K": has_top_k, "enable_fp_fusion": False}
        pivots_kernel[(num_rows,)](
            rows.logits,
            rows.temperature,
            *own,
            min_p,
            rows.largest,
            rows.total,
            records,
            *width,
            rows.num_chunks,
            CHUNKS=triton.next_power_of_2(rows.num_chunks),
            SAMPLE=SAMPLE,
            num_warps=ROW_WARPS,
            **launch,
        )
        in_chunks = launch | {"CHUNK": chunk, "num_warps": CHUNK_WARPS}
        points_kernel[grid](rows.logits, rows.temperature, records, *width, **in_chunks)
        candidates_kernel[grid](rows.logits, rows.temperature, *own, records, keys, ids, *width, **in_chunks)
        finish_kernel[(num_rows,)](
            *own,
            records,
            keys,
            ids,
            tokens,
            vocab_size,
            BLOCK=BLOCK,
            num_warps=ROW_WARPS,
            maxnreg=ROW_REGISTERS,
            **launch,
        )
    return tokens


def _summarize(logits: torch.Tensor, numbers: RowNumbers, chunk: int) -> Rows:
    num_rows, vocab_size = logits.shape
    num_chunks = triton.cdiv(vocab_size, chunk)
    largest, total = (
        torch.empty(num_rows, num_chunks, dtype=torch.float32, device=logits.device) for _ in range(2)
    )
    dense = logits if logits.stride(1) == 1 else logits.contiguous()
    rows = Rows(dense, numbers.temperature.contiguous(), largest, total)
    summarize_kernel[(num_rows, num_chunks)](
        *rows,
        vocab_size,
        dense.stride(0),
        num_chunks,
        CHUNK=chunk,
        num_warps=CHUNK_WARPS,
        enable_fp_fusion=False,
    )
    return rows
