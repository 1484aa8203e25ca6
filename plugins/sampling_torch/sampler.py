"""The token sampler `torch`."""

from __future__ import annotations

import torch

from llmfw.core import Filters, RowNumbers, TokenSampler
from llmfw.core.step.sampling.draw import sample_all, sample_candidates
from llmfw.core.step.sampling.select import sample_selected

MAX_CANDIDATES = 1024
"""Largest number of candidates to sort. If filters may keep more tokens, sampling selects without a sort."""

MAX_SORTED = 8192
"""Vocabulary size up to which a CPU sorts all tokens faster than it selects without a sort."""


class TorchSampler(TokenSampler):
    """Samples with torch's operators."""

    small_top_k = MAX_CANDIDATES

    @classmethod
    def unsupported(cls, device: str, vocab_size: int) -> str | None:
        """Return None: torch's operators run on any device."""
        return None

    def sample(self, logits: torch.Tensor, numbers: RowNumbers, filters: Filters) -> torch.Tensor:
        """Return a token id for each row: [S]."""
        if not (filters.top_k or filters.top_p or filters.min_p):
            return sample_all(logits, numbers)
        size = min(self.vocab_size, self.small_top_k)
        if filters.largest_top_k <= size:
            return sample_candidates(logits, numbers, size)[0]
        if self.may_wait:
            return self._sample_candidates_first(logits, numbers, filters, size)
        return sample_selected(logits, numbers, filters)

    def _sample_candidates_first(
        self, logits: torch.Tensor, numbers: RowNumbers, filters: Filters, size: int
    ) -> torch.Tensor:
        """Sample from a few candidates. Rows that need more candidates are sampled again from all tokens.

        If the host can check the result without waiting, sampling from candidates takes a third of the time
        of sampling from all tokens.
        """
        tokens, undecided = sample_candidates(logits, numbers, size)
        if filters.top_k:  # top_p needs the sum of the top_k tokens, of which the candidates are only a part
            undecided |= numbers.top_k[:, 0] < self.vocab_size
        again = undecided.nonzero()[:, 0]
        if len(again) and self.vocab_size <= MAX_SORTED:
            tokens[again] = sample_candidates(logits[again], numbers.of(again), self.vocab_size)[0]
        else:
            for place in again.tolist():  # row by row, because one row's data fits in the CPU's cache
                row = slice(place, place + 1)
                tokens[row] = sample_selected(logits[row], numbers.of(row), filters)
        return tokens
