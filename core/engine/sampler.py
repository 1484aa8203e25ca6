"""Logits → token ids.

A token is a function of its sequence's logits, seed and position alone: each row of a batch goes through the same
operations whatever the other rows ask for, and draws its one random number from its own seed. Sampling inverts the
cumulative distribution at that number. What must be remembered of a sequence between steps (counts of its tokens,
for penalties) is kept by row on the device, so a token need not reach the host before the next one is sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ..scheduling.plan import PlannedSequence
from .randomness import uniform
from .token_mask import TokenMasks

GREEDY_TEMPERATURE = 1e-5
"""A temperature below this one takes the most likely token: dividing by it would overflow."""

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

    def add(self, token: int | torch.Tensor) -> None:
        """Count one more output token."""
        self.num_output += 1
        self.output[token] += 1
        if self.seen is not None:
            self.seen[token] = True


class Sampler:
    """Samples one token for each row of logits.

    Args:
        max_rows: sequences that may run at once.
        vocab_size: width of the logits.
        device: where they are.
    """

    def __init__(self, max_rows: int, vocab_size: int, device: torch.device) -> None:
        self._vocab_size = vocab_size
        self._device = device
        self._counts: dict[int, TokenCounts] = {}
        self._temperature = np.ones(max_rows, dtype=np.float32)
        self._top_k = np.zeros(max_rows, dtype=np.int64)
        self._top_p = np.ones(max_rows, dtype=np.float32)
        self._min_p = np.zeros(max_rows, dtype=np.float32)
        self._seeds = np.zeros(max_rows, dtype=np.uint64)
        self._adjusted = np.zeros(max_rows, dtype=np.bool_)

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
            masks.apply(logits)
        for i in np.flatnonzero(self._adjusted[rows]).tolist():
            self._adjust(logits[i], planned[i], may_end=masks is not None and i in masks.places)
        tokens = self._choose(logits, rows, planned)
        if self._counts:
            self._remember(tokens, rows)
        return tokens

    def _choose(
        self, logits: torch.Tensor, rows: np.ndarray, planned: Sequence[PlannedSequence]
    ) -> torch.Tensor:
        greedy = (self._temperature[rows] < GREEDY_TEMPERATURE) | (self._top_k[rows] == 1)
        if greedy.all():
            return logits.argmax(dim=-1)
        filtered = ~greedy & (
            (self._top_k[rows] < self._vocab_size) | (self._top_p[rows] < 1) | (self._min_p[rows] > 0)
        )
        positions = np.array([p.end for p in planned], dtype=np.int64)
        draws = torch.from_numpy(uniform(self._seeds[rows], positions)).to(self._device, torch.float32)
        tokens = torch.empty(len(rows), dtype=torch.long, device=self._device)
        for kind, choose in (
            (greedy, lambda chosen, _, __: chosen.argmax(dim=-1)),
            (filtered, self._sample_filtered),
            (~greedy & ~filtered, self._sample_all),
        ):
            if kind.any():
                chosen = torch.from_numpy(np.flatnonzero(kind)).to(self._device)
                tokens[chosen] = choose(logits[chosen], rows[kind], draws[chosen])
        return tokens

    def _sample_all(self, logits: torch.Tensor, rows: np.ndarray, draws: torch.Tensor) -> torch.Tensor:
        """Sample among all tokens."""
        temperature = self._column(self._temperature[rows])
        return _invert(torch.softmax(logits / temperature, dim=-1), draws)

    def _sample_filtered(self, logits: torch.Tensor, rows: np.ndarray, draws: torch.Tensor) -> torch.Tensor:
        """Sample among the tokens that top_k, then top_p, then min_p leave."""
        scaled = logits / self._column(self._temperature[rows])
        size = min(self._vocab_size, MAX_CANDIDATES)
        tokens, undecided = self._sample_candidates(scaled, rows, draws, size)
        if size < self._vocab_size and bool(undecided.any()):
            again = undecided.nonzero()[:, 0]
            chosen = rows[undecided.cpu().numpy()]
            tokens[again], _ = self._sample_candidates(scaled[again], chosen, draws[again], self._vocab_size)
        return tokens

    def _sample_candidates(
        self, scaled: torch.Tensor, rows: np.ndarray, draws: torch.Tensor, size: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Sample among the `size` most likely tokens; also return which rows would have needed more: [S], bool."""
        values, ids = scaled.topk(size, dim=-1)  # [S, size], largest first
        top_k = self._column(self._top_k[rows])
        places = torch.arange(size, device=self._device)
        limited = top_k <= size  # [S, 1]: the k most likely tokens are all here
        values = values.masked_fill(places >= top_k, float("-inf"))
        whole = torch.where(limited, values.logsumexp(-1, keepdim=True), scaled.logsumexp(-1, keepdim=True))
        probs = (values - whole).exp()
        before = probs.cumsum(dim=-1) - probs
        keep = (before < self._column(self._top_p[rows])) & (
            probs >= self._column(self._min_p[rows]) * probs[:, :1]
        )
        keep[:, 0] = True
        undecided = keep[:, -1] & ~limited[:, 0]
        places_drawn = _invert(probs * keep, draws)
        return ids.gather(-1, places_drawn[:, None])[:, 0], undecided

    def _adjust(self, logits: torch.Tensor, planned: PlannedSequence, *, may_end: bool) -> None:
        """Apply penalties, then bias, then the ban on stop tokens, to one row of logits, in place."""
        params = planned.seq.request.sampling
        counts = self._counts.get(planned.row)
        num_output = planned.end - planned.seq.prompt_len
        if counts is not None:
            # Tokens that a constraint forced were not sampled here.
            for token in planned.seq.output_ids[counts.num_output : num_output].tolist():
                counts.add(token)
            if counts.seen is not None:
                penalty = params.repetition_penalty
                punished = torch.where(logits > 0, logits / penalty, logits * penalty)
                logits.copy_(torch.where(counts.seen, punished, logits))
            logits -= params.frequency_penalty * counts.output
            logits -= params.presence_penalty * (counts.output > 0)
        if params.logit_bias:
            ids = torch.tensor(list(params.logit_bias), device=self._device)
            logits[ids] += torch.tensor(list(params.logit_bias.values()), device=self._device)
        if not may_end and num_output < params.min_tokens and planned.seq.stop_token_ids:
            logits[torch.tensor(sorted(planned.seq.stop_token_ids), device=self._device)] = float("-inf")

    def _count(self, planned: PlannedSequence) -> TokenCounts | None:
        params = planned.seq.request.sampling
        repeats = params.repetition_penalty != 1
        if not (repeats or params.presence_penalty or params.frequency_penalty):
            return None
        output = np.bincount(planned.seq.output_ids, minlength=self._vocab_size).astype(np.float32)
        seen = None
        if repeats:
            marked = np.zeros(self._vocab_size, dtype=np.bool_)
            marked[planned.seq.token_ids] = True
            seen = torch.from_numpy(marked).to(self._device)
        return TokenCounts(planned.seq.num_output, torch.from_numpy(output).to(self._device), seen)

    def _remember(self, tokens: torch.Tensor, rows: np.ndarray) -> None:
        for i, row in enumerate(rows):
            counts = self._counts.get(int(row))
            if counts is not None:
                counts.add(tokens[i])

    def _column(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(values).to(self._device)[:, None]


def _invert(weights: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """Return, for each row, the first place where the running sum of weights exceeds draw × total: [S]."""
    total = weights.cumsum(dim=-1)
    found = torch.searchsorted(total, draws[:, None] * total[:, -1:], right=True)[:, 0]
    # A draw next to 1 may round up to the total: the last place that has any weight is meant then.
    last = weights.shape[-1] - 1 - (weights > 0).flip(-1).int().argmax(dim=-1)
    return torch.minimum(found, last)
