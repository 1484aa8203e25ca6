"""Output of a step that is still being copied from the device to the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from llmfw.core.base.request import TokenLogprob
from llmfw.core.base.step import StepOutput

from .sampling.logprobs import RowLogprobs


@dataclass(frozen=True, slots=True)
class Scores:
    """Log probabilities of some tokens.

    Attributes:
        rows: page table row of each token: [R].
        wanted: number of most likely tokens to report with each token: [R].
        logprobs: log probabilities of the R tokens.
        given_ids: tokens that the token's request names: [R]; empty if no request names any.
    """

    rows: Sequence[int]
    wanted: Sequence[int]
    logprobs: RowLogprobs
    given_ids: Sequence[list[int]] = ()

    def by_row(self) -> dict[int, list[TokenLogprob]]:
        """Return the records of each page table row, in order."""
        found: dict[int, list[TokenLogprob]] = {}
        records = self.logprobs.records(self.wanted, self.given_ids)
        for row, record in zip(self.rows, records, strict=True):
            found.setdefault(row, []).append(record)
        return found


class PendingOutput:
    """Copies a step's output to the host without blocking the host.

    Args:
        tokens: sampled token ids, on the device: [S].
        are_finite: whether the logits of each token are finite, on the device: [S].
        scores: log probabilities of sampled tokens.
        prompt_scores: log probabilities of prompt tokens.
    """

    __slots__ = ("_are_finite", "_event", "_prompt_scores", "_scores", "_tokens")

    def __init__(
        self,
        tokens: torch.Tensor,
        are_finite: torch.Tensor,
        scores: Sequence[Scores] = (),
        prompt_scores: Sequence[Scores] = (),
    ) -> None:
        self._event: torch.cuda.Event | None = None
        self._tokens = _start_copy(tokens)
        self._are_finite = _start_copy(are_finite)
        self._scores = [_start_copies(each) for each in scores]
        self._prompt_scores = [_start_copies(each) for each in prompt_scores]
        if tokens.is_cuda:
            self._event = torch.cuda.Event()
            self._event.record()

    def result(self) -> StepOutput:
        """Wait for the output, and return it."""
        if self._event is not None:
            self._event.synchronize()
        are_finite = self._are_finite.numpy()
        return StepOutput(
            self._tokens.tolist(),
            _all_rows(self._scores),
            _all_rows(self._prompt_scores),
            [] if are_finite.all() else np.flatnonzero(~are_finite).tolist(),
        )


def _all_rows(scores: Sequence[Scores]) -> dict[int, list[TokenLogprob]]:
    found: dict[int, list[TokenLogprob]] = {}
    for each in scores:
        found |= each.by_row()
    return found


def _start_copies(scores: Scores) -> Scores:
    return replace(scores, logprobs=RowLogprobs(*map(_start_copy, scores.logprobs.tensors())))


def _start_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Start to copy a tensor to the host; return the host's tensor."""
    if not tensor.is_cuda:
        return tensor
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
    return copy.copy_(tensor, non_blocking=True)
