"""The token sampler `triton`."""

from __future__ import annotations

import os

import torch

from llmfw.core import Filters, RowNumbers, TokenSampler

from .ops import sample_all, sample_selected

MAX_VOCAB_SIZE = 1 << 24
"""Above this, rounded masses of 2**-30 could sum to more than an int32 holds, and many would be 0."""


class TritonSampler(TokenSampler):
    """Samples with Triton kernels, which are compiled when the token sampler is built."""

    def __init__(self, vocab_size: int, device: torch.device, *, may_wait: bool) -> None:
        super().__init__(vocab_size, device, may_wait=may_wait)
        if device.type == "cuda":
            self._compile()

    @classmethod
    def unsupported(cls, device: str, vocab_size: int) -> str | None:
        """Return the reason why the kernels cannot run; None if they can."""
        is_interpreted = os.environ.get("TRITON_INTERPRET", "0") not in ("", "0")
        if not (device.startswith("cuda") or is_interpreted):
            return "its kernels run on cuda"
        if vocab_size > MAX_VOCAB_SIZE:
            return f"its kernels sample from at most {MAX_VOCAB_SIZE:,} tokens, not {vocab_size:,}"
        return None

    def sample(self, logits: torch.Tensor, numbers: RowNumbers, filters: Filters) -> torch.Tensor:
        """Return a token id for each row: [S]."""
        if not (filters.top_k or filters.top_p or filters.min_p):
            return sample_all(logits, numbers)
        return sample_selected(logits, numbers, has_top_k=filters.top_k)

    def _compile(self) -> None:
        """Launch each kernel once, so that no step waits for the compiler."""
        logits = torch.zeros(1, self.vocab_size, device=self.device)
        column = torch.ones(1, 1, device=self.device)
        numbers = RowNumbers(column[0].double() / 2, column, column.long(), column / 2, column / 2)
        for filters in (
            Filters(False, False, False, self.vocab_size),
            Filters(False, True, True, self.vocab_size),
            Filters(True, True, True, 1),
        ):
            self.sample(logits, numbers, filters)
