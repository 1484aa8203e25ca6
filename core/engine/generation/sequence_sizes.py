"""The memory of steps that grows with the longest sequence: the page table and the attention backend's buffers.

Like `memory_plan`, this needs neither tensors nor a device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

ASSUMED_ATTENTION_BYTES = 400 << 20
"""Assumed scratch memory of an unknown attention backend, in bytes: FlashInfer's memory for 32 query heads.
"""

Items = tuple[tuple[str, int], ...]
"""Name and size in bytes of uses of memory."""


@dataclass(frozen=True, slots=True)
class SequenceSizes:
    """Sizes of the sequences of a step, which determine the memory of the page table and of the attention backend.

    Attributes:
        max_running: maximum number of running sequences.
        context: maximum number of tokens of a sequence; None: as many as the storage holds.
        attention_bytes: returns the memory that the attention backend takes for steps in bytes, by the maximum number
            of pages of a sequence.
    """

    max_running: int
    context: int | None
    attention_bytes: Callable[[int], int]

    def items(self, num_pages: int) -> Items:
        """Return name and size in bytes of each use of memory, for sequences of at most `num_pages` pages."""
        table = 4 * (self.max_running + 1) * num_pages  # the last row is for padding
        return (("page table", table), ("attention backend", self.attention_bytes(num_pages)))


def assumed_attention_bytes(max_graph_size: int, num_pages: int) -> int:
    """Return the memory in bytes to assume for an unknown attention backend: FlashInfer's memory.

    Args:
        max_graph_size: maximum number of sequences in a captured step; 0: no step is captured.
        num_pages: maximum number of pages of a sequence.
    """
    indices = 4 * num_pages << (max_graph_size - 1).bit_length() if max_graph_size else 0
    return ASSUMED_ATTENTION_BYTES + indices
