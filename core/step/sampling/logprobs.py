"""Computes log probabilities of tokens from logits, for the requests that ask for log probabilities.

The values are the model's own log probabilities: the natural logarithm of the softmax of the float32 logits,
before temperature, penalties, bias and masks. Rows are computed in slices to save memory, because a row is as
wide as the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from llmfw.core.base.request import TokenLogprob

LOWEST = -9999.0
"""Value that replaces minus infinity, which JSON cannot represent."""

SLICE_ELEMENTS = 1 << 24

LEAST_GIVEN = 16
"""Minimum width of a table of given tokens, so that few different widths occur."""

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
        given: log probabilities of the tokens that requests name: [R, m]; None: no request of these rows
            names any.
    """

    chosen: torch.Tensor
    top_ids: torch.Tensor
    top: torch.Tensor
    ranks: torch.Tensor
    given: torch.Tensor | None = None

    @classmethod
    def of(
        cls, logits: torch.Tensor, token_ids: torch.Tensor, k: int, given: torch.Tensor | None = None
    ) -> RowLogprobs:
        """Compute the log probabilities of tokens.

        Args:
            logits: logits in any floating-point type: [R, vocab].
            token_ids: chosen token of each row, int64: [R].
            k: number of most likely tokens per row.
            given: further tokens of each row, int64: [R, m]; None: none.
        """
        size = max(1, SLICE_ELEMENTS // logits.shape[-1])
        columns = [logits, token_ids] if given is None else [logits, token_ids, given]
        pieces = [_of_slice(k, *piece) for piece in zip(*(each.split(size) for each in columns), strict=True)]
        return cls(*(torch.cat(parts) for parts in zip(*pieces, strict=True)))

    def tensors(self) -> list[torch.Tensor]:
        """Return the tensors to copy to the host, in the order of the attributes."""
        common = [self.chosen, self.top_ids, self.top, self.ranks]
        return common if self.given is None else [*common, self.given]

    def records(self, wanted: Sequence[int], given_ids: Sequence[list[int]] = ()) -> list[TokenLogprob]:
        """Return one `TokenLogprob` per row: [R].

        Args:
            wanted: number of most likely tokens to report for each row, at most k: [R].
            given_ids: for each row, the tokens of the log probabilities in `given`, at most m: [R]. Not used
                without `given`. The records hold these lists themselves, not copies.
        """
        chosen, top_ids, top, ranks = (
            each.tolist() for each in (self.chosen, self.top_ids, self.top, self.ranks)
        )
        if self.given is None:
            return [
                TokenLogprob(own, ids[:num], likely[:num], rank)
                for own, ids, likely, rank, num in zip(chosen, top_ids, top, ranks, wanted, strict=True)
            ]
        return [
            TokenLogprob(own, ids[:num], likely[:num], rank, named, values[: len(named)])
            for own, ids, likely, rank, num, named, values in zip(
                chosen, top_ids, top, ranks, wanted, given_ids, self.given.tolist(), strict=True
            )
        ]


def num_top_tokens(k: int, vocab_size: int) -> int:
    """Round a number of most likely tokens up to 0, 20 or a larger power of two.

    Most requests then share one computation, even if they want different numbers of tokens.
    """
    return min(vocab_size, max(MOST_LIKELY, 1 << (k - 1).bit_length())) if k else 0


def table_width(num_given: int) -> int:
    """Round a number of given tokens up to 0, LEAST_GIVEN or a larger power of two."""
    return max(LEAST_GIVEN, 1 << (num_given - 1).bit_length()) if num_given else 0


def _of_slice(
    k: int, logits: torch.Tensor, token_ids: torch.Tensor, given: torch.Tensor | None = None
) -> tuple[torch.Tensor, ...]:
    logprobs = torch.log_softmax(logits.float(), dim=-1).clamp_min(LOWEST)
    top, top_ids = logprobs.topk(k, dim=-1)
    chosen = logprobs.gather(-1, token_ids[:, None])
    found = chosen[:, 0], top_ids, top, (logprobs >= chosen).sum(dim=-1)
    return found if given is None else (*found, logprobs.gather(-1, given))
