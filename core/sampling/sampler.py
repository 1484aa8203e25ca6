"""Logits → token ids.

A token is a function of its sequence's logits, seed and position alone: each row of a batch goes through the same
operations whatever the other rows ask for, and draws its one random number from its own seed. Sampling inverts the
cumulative distribution at that number. What must be remembered of a sequence between steps (counts of its tokens,
for penalties) is kept by row on the device, so a token need not reach the host before the next one is sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from ..device.staging import Staging
from ..scheduling.plan import PlannedSequence
from ..scheduling.sequence_table import Ints
from .randomness import uniform
from .token_mask import TokenMasks

GREEDY_TEMPERATURE = 1e-5
"""A temperature below this one takes the most likely token: dividing by it would overflow."""

GREEDY, FILTERED, UNFILTERED = 0, 1, 2
"""How a row is sampled: its most likely token, among those that a filter leaves, among all."""

MAX_CANDIDATES = 1024
"""Sorting starts with so many of the most likely tokens; all are sorted only where these do not settle it."""


@dataclass(slots=True)
class TokenCounts:
    """What one sequence has generated, on the device, for its penalties.

    Attributes:
        num_output: how many output tokens are counted.
        output: how often each token was generated: [vocab], float32.
        seen: whether each token is in prompt or output: [vocab], bool; None without a repetition penalty.
    """

    num_output: int
    output: torch.Tensor
    seen: torch.Tensor | None

    def add(self, tokens: torch.Tensor) -> None:
        """Count more output tokens, one after the other: [n], on the device."""
        self.num_output += len(tokens)
        self.output.index_add_(0, tokens, torch.ones_like(tokens, dtype=torch.float32))
        if self.seen is not None:
            self.seen.index_fill_(0, tokens, True)


class RowNumbers(NamedTuple):
    """What decides how each row is sampled, on the device.

    Attributes:
        draws: a random number: [S].
        temperature, top_k, top_p, min_p: [S, 1].
    """

    draws: torch.Tensor
    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor

    def of(self, places: torch.Tensor) -> RowNumbers:
        """Return those of some rows."""
        return RowNumbers(*(column[places] for column in self))


Choose = Callable[[torch.Tensor, RowNumbers], torch.Tensor]
"""(logits [S, vocab], what decides) → tokens [S]."""


class Sampler:
    """Samples one token for each row of logits.

    Args:
        max_rows: sequences that may run at once.
        vocab_size: width of the logits.
        device: where they are.
        staging: brings numbers there.
    """

    def __init__(
        self, max_rows: int, vocab_size: int, device: torch.device, staging: Staging | None = None
    ) -> None:
        self._vocab_size = vocab_size
        self._device = device
        self._staging = staging or Staging(device)
        self._num_candidates = min(vocab_size, MAX_CANDIDATES)
        self._counts: dict[int, TokenCounts] = {}
        self._temperature = np.ones(max_rows, dtype=np.float32)
        self._top_k = np.zeros(max_rows, dtype=np.int64)
        self._top_p = np.ones(max_rows, dtype=np.float32)
        self._min_p = np.zeros(max_rows, dtype=np.float32)
        self._seeds = np.zeros(max_rows, dtype=np.uint64)
        self._adjusted = np.zeros(max_rows, dtype=np.bool_)
        self._kinds = np.zeros(max_rows, dtype=np.int8)  # places in `chooses` of `_choose`
        self._may_need_all = np.zeros(max_rows, dtype=np.bool_)

    def start(self, planned: PlannedSequence) -> None:
        """Take note of a sequence that just got its row. All its tokens are known."""
        seq, row = planned.seq, planned.row
        params = seq.request.sampling
        self._temperature[row] = params.temperature
        self._top_k[row] = self._vocab_size if params.top_k <= 0 else min(params.top_k, self._vocab_size)
        self._top_p[row] = params.top_p
        self._min_p[row] = params.min_p
        self._seeds[row] = np.uint64((params.seed or 0) & 0xFFFFFFFFFFFFFFFF)
        counts = self._count(planned)
        self._counts.pop(row, None)
        if counts is not None:
            self._counts[row] = counts
        waits = bool(params.min_tokens and seq.stop_token_ids)
        self._adjusted[row] = bool(counts is not None or params.logit_bias or waits)
        kind = self._kinds[row] = self._kind(row)
        self._may_need_all[row] = kind == FILTERED and self._top_k[row] > self._num_candidates

    def sample(
        self, logits: torch.Tensor, planned: Sequence[PlannedSequence], masks: TokenMasks | None = None
    ) -> torch.Tensor:
        """Return a token id for each row of logits.

        Args:
            logits: [S, vocab], float32. Changed in place.
            planned: the sequences that they belong to. The token at `length` is to be sampled.
            masks: which tokens are allowed, for the rows where not all are.

        Returns:
            [S], int64, on the device.
        """
        rows = np.array([p.row for p in planned], dtype=np.int64)
        if masks is not None:
            masks.apply(logits, self._staging)
        for i in self._adjusted[rows].nonzero()[0].tolist():
            self._adjust(logits[i], planned[i], may_end=masks is not None and i in masks.places)
        tokens = self._choose(logits, rows, planned)
        if self._counts:
            self._remember(tokens, rows)
        return tokens

    def _choose(self, logits: torch.Tensor, rows: Ints, planned: Sequence[PlannedSequence]) -> torch.Tensor:
        kinds = self._kinds[rows]
        if not np.count_nonzero(kinds):
            return self._take_largest(logits)
        places_of_kinds = [np.flatnonzero(kinds == kind) for kind in (GREEDY, FILTERED, UNFILTERED)]
        positions = np.array([p.end for p in planned], dtype=np.int64)
        sent = self._staging.send(
            *places_of_kinds,
            uniform(self._seeds[rows], positions),
            *(column[rows] for column in (self._temperature, self._top_k, self._top_p, self._min_p)),
        )
        numbers = RowNumbers(sent[3].float(), *(column[:, None] for column in sent[4:]))
        sample_filtered: Choose = partial(self._sample_filtered, may_need_all=self.waits(rows))
        tokens = torch.empty(len(rows), dtype=torch.long, device=self._device)
        chooses: tuple[Choose, ...] = (self._take_largest, sample_filtered, self._sample_all)
        for places, choose in zip(sent, chooses, strict=False):
            if len(places):
                tokens[places] = choose(logits[places], numbers.of(places))
        return tokens

    def waits(self, rows: Ints) -> bool:
        """Return whether the host has to wait for the logits of these rows, to see how many candidates they need."""
        return bool(self._may_need_all[rows].any())

    def _kind(self, row: int) -> int:
        """Return whether a row takes the most likely token, samples among some, or among all."""
        if self._temperature[row] < GREEDY_TEMPERATURE or self._top_k[row] == 1:
            return GREEDY
        limited = self._top_k[row] < self._vocab_size or self._top_p[row] < 1 or self._min_p[row] > 0
        return FILTERED if limited else UNFILTERED

    def _take_largest(self, logits: torch.Tensor, numbers: RowNumbers | None = None) -> torch.Tensor:
        """Take the first of the most likely tokens."""
        if self._staging.is_shared:  # numpy compares many numbers at a time, torch one after the other
            return torch.from_numpy(logits.numpy().argmax(axis=-1))
        return logits.argmax(dim=-1)

    def _sample_all(self, logits: torch.Tensor, numbers: RowNumbers) -> torch.Tensor:
        """Sample among all tokens."""
        return _invert(torch.softmax(logits / numbers.temperature, dim=-1), numbers.draws)

    def _sample_filtered(
        self, logits: torch.Tensor, numbers: RowNumbers, *, may_need_all: bool
    ) -> torch.Tensor:
        """Sample among the tokens that top_k, then top_p, then min_p leave."""
        scaled = logits / numbers.temperature
        tokens, undecided = self._sample_candidates(scaled, numbers, self._num_candidates)
        # The only place where the host waits for the device (see `waits`).
        if may_need_all and bool(undecided.any()):
            again = undecided.nonzero()[:, 0]
            tokens[again], _ = self._sample_candidates(scaled[again], numbers.of(again), self._vocab_size)
        return tokens

    def _sample_candidates(
        self, scaled: torch.Tensor, numbers: RowNumbers, size: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Sample among the `size` most likely tokens; also return which rows would have needed more: [S], bool."""
        values, ids = scaled.topk(size, dim=-1)  # [S, size], largest first
        top_k = numbers.top_k
        places = torch.arange(size, device=self._device)
        limited = top_k <= size  # [S, 1]: the k most likely tokens are all here
        values = values.masked_fill(places >= top_k, float("-inf"))
        whole = torch.where(limited, values.logsumexp(-1, keepdim=True), scaled.logsumexp(-1, keepdim=True))
        probs = (values - whole).exp()
        before = probs.cumsum(dim=-1) - probs
        keep = (before < numbers.top_p) & (probs >= numbers.min_p * probs[:, :1])
        keep[:, :1].fill_(True)
        undecided = keep[:, -1] & ~limited[:, 0]
        places_drawn = _invert(probs * keep, numbers.draws)
        return ids.gather(-1, places_drawn[:, None])[:, 0], undecided

    def _adjust(self, logits: torch.Tensor, planned: PlannedSequence, *, may_end: bool) -> None:
        """Apply penalties, then bias, then the ban on stop tokens, to one row of logits, in place."""
        params = planned.seq.request.sampling
        counts = self._counts.get(planned.row)
        num_output = planned.end - planned.seq.prompt_len
        if counts is not None:
            # Tokens that a constraint forced were not sampled here.
            forced = planned.seq.output_ids[counts.num_output : num_output]
            if len(forced):
                counts.add(*self._staging.send(forced.astype(np.int64)))
            if counts.seen is not None:
                penalty = params.repetition_penalty
                punished = torch.where(logits > 0, logits / penalty, logits * penalty)
                logits.copy_(torch.where(counts.seen, punished, logits))
            logits -= params.frequency_penalty * counts.output
            logits -= params.presence_penalty * (counts.output > 0)
        if params.logit_bias:
            ids = np.fromiter(params.logit_bias, np.int64)
            bias = np.fromiter(params.logit_bias.values(), np.float32)
            logits.index_add_(0, *self._staging.send(ids, bias))
        if not may_end and num_output < params.min_tokens and planned.seq.stop_token_ids:
            [stops] = self._staging.send(np.array(sorted(planned.seq.stop_token_ids), dtype=np.int64))
            logits.index_fill_(0, stops, float("-inf"))

    def _count(self, planned: PlannedSequence) -> TokenCounts | None:
        params = planned.seq.request.sampling
        repeats = params.repetition_penalty != 1
        if not (repeats or params.presence_penalty or params.frequency_penalty):
            return None
        output = np.bincount(planned.seq.output_ids, minlength=self._vocab_size).astype(np.float32)
        if not repeats:
            return TokenCounts(planned.seq.num_output, self._staging.send(output)[0], None)
        seen = np.zeros(self._vocab_size, dtype=np.bool_)
        seen[planned.seq.token_ids] = True
        return TokenCounts(planned.seq.num_output, *self._staging.send(output, seen))

    def _remember(self, tokens: torch.Tensor, rows: Ints) -> None:
        for i, row in enumerate(rows):
            counts = self._counts.get(int(row))
            if counts is not None:
                counts.add(tokens[i : i + 1])


def _invert(weights: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """Return, for each row, the first place where the running sum of weights exceeds draw × total: [S]."""
    total = weights.cumsum(dim=-1)
    found = torch.searchsorted(total, draws[:, None] * total[:, -1:], right=True)[:, 0]
    # A draw next to 1 may round up to the total: the last place that has any weight is meant then.
    last = weights.shape[-1] - 1 - (weights > 0).flip(-1).int().argmax(dim=-1)
    return torch.minimum(found, last)
