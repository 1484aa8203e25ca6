"""Logits → log probabilities, of the tokens that requests ask for.

They are those of the model itself: the natural logarithm of the softmax of its float32 logits, before temperature,
penalties, bias and masks. Only rows that ask are looked at, in slices, since a row is as wide as the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from llmfw.core.base.request import TokenLogprob

LOWEST = -9999.0
"""In place of minus infinity, which JSON does not have."""

SLICE_ELEMENTS = 1 << 24

MOST_LIKELY = 20
"""As many of the most likely tokens as OpenAI's API may be asked for."""


@dataclass(frozen=True, slots=True)
class RowLogprobs:
    """Log probabilities of R rows, on any device.

    Attributes:
        chosen: of each row's token: [R].
        top_ids: the k most likely tokens, the most likely first: [R, k].
        top: theirs: [R, k].
    """

    chosen: torch.Tensor
    top_ids: torch.Tensor
    top: torch.Tensor

    @classmethod
    def of(cls, logits: torch.Tensor, token_ids: torch.Tensor, k: int) -> RowLogprobs:
        """Compute them.

        Args:
            logits: [R, vocab].
            token_ids: [R], int64.
            k: how many of the most likely tokens.
        """
        size = max(1, SLICE_ELEMENTS // logits.shape[-1])
        pieces = [
            _of_slice(*piece, k) for piece in zip(logits.split(size), token_ids.split(size), strict=True)
        ]
        return cls(*(torch.cat(parts) for parts in zip(*pieces, strict=True)))

    def tensors(self) -> list[torch.Tensor]:
        """Return what has to reach the host."""
        return [self.chosen, self.top_ids, self.top]

    def records(self) -> list[TokenLogprob]:
        """Return them as they cross the wire: [R]."""
        rows = zip(self.chosen.tolist(), self.top_ids.tolist(), self.top.tolist(), strict=True)
        return [TokenLogprob(*row) for row in rows]


def num_looked_for(k: int, vocab_size: int) -> int:
    """Return how many of the most likely tokens to look for where k are wanted: 0, 20, or by powers of two."""
    return min(vocab_size, max(MOST_LIKELY, 1 << (k - 1).bit_length())) if k else 0


def first_of(record: TokenLogprob, k: int) -> TokenLogprob:
    """Return a record that has k of the most likely tokens, of one that has at least as many."""
    return TokenLogprob(record.logprob, record.top_ids[:k], record.top_logprobs[:k])


def _of_slice(
    logits: torch.Tensor, token_ids: torch.Tensor, k: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    logprobs = torch.log_softmax(logits.float(), dim=-1).clamp_min(LOWEST)
    top, top_ids = logprobs.topk(k, dim=-1)
    return logprobs.gather(-1, token_ids[:, None])[:, 0], top_ids, top
