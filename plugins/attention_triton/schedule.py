"""The kernel that splits the keys of decoding sequences into about equal pieces, one per program.

The kernel runs on the device and reads the sequences' lengths there. The number of programs depends on the
number of sequences, never on their lengths, so one CUDA graph serves every length. S is the number of pieces
that would occupy the whole device. The piece length is the number of all keys divided by S, rounded up. Each
sequence's last piece may be shorter, so B sequences have at most B + S pieces.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

PIECE_STEP = 64
"""Piece lengths are multiples of this number of tokens, a multiple of the decode kernel's key tiles."""

NO_WINDOW = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Schedule:
    """Assignment of keys to programs.

    Attributes:
        pieces: for each piece: its sequence, first token, token after the last, and the sequence's number of
            pieces: [B + S, 4], int32. Rows beyond the last piece are undefined.
        firsts: index of each sequence's first piece, then the total number of pieces: [B + 1], int32.
    """

    pieces: torch.Tensor
    firsts: torch.Tensor

    @classmethod
    def empty(cls, num_sequences: int, num_spare: int, device: torch.device) -> Schedule:
        """Return an uninitialized schedule, for `schedule` to fill. `num_spare` is S."""
        return cls(
            torch.empty((num_sequences + num_spare, 4), dtype=torch.int32, device=device),
            torch.empty(num_sequences + 1, dtype=torch.int32, device=device),
        )


@triton.jit(do_not_specialize=["num_sequences", "window", "num_spare"])
def schedule_kernel(
    kv_lens: tl.tensor,
    pieces: tl.tensor,
    firsts: tl.tensor,
    num_sequences: tl.tensor,
    window: tl.tensor,
    num_spare: tl.tensor,
    step: tl.constexpr,
    block_sequences: tl.constexpr,
    block_pieces: tl.constexpr,
) -> None:
    """Write the pieces of one sequence.

    Grid: (sequence,). Each program adds up the lengths of all sequences.
    """
    sequence = tl.program_id(0)
    others = tl.arange(0, block_sequences)
    visible = tl.load(kv_lens + others, mask=others < num_sequences, other=0)
    visible = tl.minimum(visible, window)
    share = (tl.sum(visible, 0) + num_spare - 1) // num_spare
    size = tl.maximum((share + step - 1) // step, 1) * step
    counts = (visible + size - 1) // size
    first = tl.sum(tl.where(others < sequence, counts, 0), 0)
    end = tl.load(kv_lens + sequence)
    start = end - tl.minimum(end, window)
    count = (end - start + size - 1) // size
    piece = tl.arange(0, block_pieces)
    mine = piece < count
    begins = start + piece * size
    at = pieces + (first + piece) * 4
    tl.store(at, sequence, mask=mine)
    tl.store(at + 1, begins, mask=mine)
    tl.store(at + 2, tl.minimum(begins + size, end), mask=mine)
    tl.store(at + 3, count, mask=mine)
    tl.store(firsts + sequence, first)
    tl.store(firsts + sequence + 1, first + count)


def schedule(kv_lens: torch.Tensor, window: int | None, made: Schedule) -> None:
    """Write a schedule for B sequences.

    Args:
        kv_lens: number of tokens of each sequence: [B], int32.
        window: number of last tokens that a sequence attends to; None: all.
        made: schedule to write.
    """
    num_sequences = len(kv_lens)
    num_spare = len(made.pieces) - num_sequences
    schedule_kernel[(num_sequences,)](
        kv_lens,
        made.pieces,
        made.firsts,
        num_sequences,
        NO_WINDOW if window is None else window,
        num_spare,
        step=PIECE_STEP,
        block_sequences=max(64, triton.next_power_of_2(num_sequences)),
        block_pieces=triton.next_power_of_2(num_spare + 1),
        num_warps=4,
    )
