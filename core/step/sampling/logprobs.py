"""Computes log probabilities of tokens from logits, for the requests that want them.

The values are the model's own log probabilities: the natural logarithm of the softmax of the float32 logits,
before temperature, penalties, bias and masks. Rows are computed in slices to save memory, because a row is as
wide as the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from llmfw.core.base.request import TokenLogprob

LOWEST = -9999.0
"""Value that replaces minus infinity, which JSON cannot represent."""

SLICE_ELEMENTS = 1 << 24

MOST_LIKELY = 20
"""Largest number of most likely tokens (`top_logprobs`) in OpenAI's API."""


@dataclass(frozen=True, slots=True)
class RowLogprobs:
    """Log probabilities for R rows of logits, on any device.

    Attributes:
        chosen: log probability of each row's chosen token: [R].
        top_ids: the k most likely tokens of each row, most likely first: [R, k].
        top: log probabilities of `top_ids`: [R, k].
        ranks: number of tokens at least as likely as each row's chosen token: [R].
    """

    chosen: torch.Tensor
    top_ids: torch.Tensor
    top: torch.Tensor
    ranks: torch.Tensor

    @classmethod
    def of(cls, logits: torch.Tensor, token_ids: torch.Tensor, k: int) -> RowLogprobs:
        """Compute the log probabilities of tokens.

        Args:
            logits: logits in any floating-point type: [R, vocab].
            token_ids: chosen token of each row, int64: [R].
            k: number of most likely tokens per row.
        """
        size = max(1, SLICE_ELEMENTS // logits.shape[-1])
        pieces = [
            _of_slice(*piece, k) for piece in zip(logits.split(size), token_ids.split(size), strict=True)
        ]
        return cls(*(torch.cat(parts) for parts in zip(*pieces, strict=True)))

    def tensors(self) -> list[torch.Tensor]:
        """Return the tensors to copy to the host, in the order of the attributes."""
        return [self.chosen, self.top_ids, self.top, self.ranks]

    def records(self) -> list[TokenLogprob]:
        """Return one `TokenLogprob` per row: [R]."""
        columns = (each.tolist() for each in self.tensors())
        return [TokenLogprob(*row) for row in zip(*columns, strict=True)]


def num_top_tokens(k: int, vocab_size: int) -> int:
    """Round a number of most likely tokens up to 0, 20 or a larger power of two.

    Most requests then share one computation, even if they want different numbers of tokens.
    """
    return min(vocab_size, max(MOST_LIKELY, 1 << (k - 1).bit_length())) if k else 0


def first_of(record: TokenLogprob, k: int) -> TokenLogprob:
    """Return a copy of a record with only its first k most likely tokens."""
    return TokenLogprob(record.logprob, record.top_ids[:k], record.top_logprobs[:k], record.rank)


def _of_slice(
    logits: torch.Tensor, token_ids: torch.Tensor, k: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    logprobs = torch.log_softmax(logits.float(), dim=-1).clamp_min(LOWEST)
    top, top_ids = logprobs.topk(k, dim=-1)
    chosen = logprobs.gather(-1, token_ids[:, None])
    return chosen[:, 0], top_ids, top, (logprobs >= chosen).sum(dim=-1)
