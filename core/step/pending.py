"""Output of a step that is still being copied from the device to the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from llmfw.core.base.request import TokenLogprob
from llmfw.core.base.step import StepOutput

from .processors.isolated_processor import NOT_LOGITS
from .processors.processing import FaultCheck, Processing
from .sampling.logprobs import RowLogprobs


@dataclass(frozen=True, slots=True)
class Scores:
    """Log probabilities of some tokens.

    Attributes:
        rows: page table row of each token: [R].
        wanted: number of most likely tokens to report with each token: [R].
        logprobs: log probabilities of the R tokens.
        given_ids: tokens that each token's request names: [R]; empty if no request names tokens.
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
        processing: logits processors of the step; None: no row uses a logits processor.
    """

    __slots__ = ("_are_finite", "_checks", "_event", "_failures", "_prompt_scores", "_scores", "_tokens")

    def __init__(
        self,
        tokens: torch.Tensor,
        are_finite: torch.Tensor,
        scores: Sequence[Scores] = (),
        prompt_scores: Sequence[Scores] = (),
        processing: Processing | None = None,
    ) -> None:
        self._event: torch.cuda.Event | None = None
        self._tokens = _start_copy(tokens)
        self._are_finite = _start_copy(are_finite)
        self._scores = scores and [_start_copies(each) for each in scores]
        self._prompt_scores = prompt_scores and [_start_copies(each) for each in prompt_scores]
        self._failures = {} if processing is None else processing.failures
        self._checks = [] if processing is None else [_start_check(each) for each in processing.checks]
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
            _all_rows(self._scores) if self._scores else {},
            _all_rows(self._prompt_scores) if self._prompt_scores else {},
            [] if np.count_nonzero(are_finite) == len(are_finite) else np.flatnonzero(~are_finite).tolist(),
            self._failures | _faults(self._checks) if self._checks else self._failures,
        )


def _all_rows(scores: Sequence[Scores]) -> dict[int, list[TokenLogprob]]:
    found: dict[int, list[TokenLogprob]] = {}
    for each in scores:
        found |= each.by_row()
    return found


def _faults(checks: Sequence[FaultCheck]) -> dict[int, str]:
    """Log the faulty logits of processors; return an error message for each place with faulty logits."""
    found: dict[int, str] = {}
    for each in checks:
        faulty = each.places[each.are_faulty.numpy()].tolist()
        if faulty:
            found |= dict.fromkeys(faulty, each.processor.fail(NOT_LOGITS))
    return found


def _start_check(check: FaultCheck) -> FaultCheck:
    return replace(check, are_faulty=_start_copy(check.are_faulty))


def _start_copies(scores: Scores) -> Scores:
    return replace(scores, logprobs=RowLogprobs(*map(_start_copy, scores.logprobs.tensors())))


def _start_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Start to copy a tensor to the host; return the host's tensor."""
    if not tensor.is_cuda:
        return tensor
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
    return copy.copy_(tensor, non_blocking=True)
