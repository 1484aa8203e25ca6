"""What a request changes about its logits before a token is drawn: penalties, then bias, then the ban on stop tokens.

All rows that ask are changed together, by as many operations as one would take, and only at the tokens that matter: those
of its prompt and output, of its bias, of its ends. How often which token was generated stands on the device, so that a
token need not reach the host before the next one is sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from llmfw.core.base.request import SamplingParams
from llmfw.core.schedule.plan import PlannedSequence
from llmfw.core.schedule.sequence_table import Ints

from ..device.staging import Staging
from .token_counts import Entries, TokenCounts, TokensAndCounts

Bias = tuple[Ints, npt.NDArray[np.float32]]

PENALTIES, BIAS, HOLD = 1, 2, 4
"""What a request asks for."""

UNCOUNTED = -1


@dataclass(frozen=True, slots=True)
class Penalised:
    """The sequences of a step that have penalties: P of them.

    Attributes:
        rows: theirs, on the host: [P].
        places: theirs among the logits, on the device: [P].
        entries: their tokens, and how often each was generated.
    """

    rows: Ints
    places: torch.Tensor
    entries: Entries


class Adjustments:
    """Changes logits as requests ask for.

    Args:
        max_rows: sequences that may run at once.
        staging: brings numbers to the device.
        device: where the logits are.
    """

    def __init__(self, max_rows: int, staging: Staging, device: torch.device) -> None:
        self._staging = staging
        self._lowest = torch.full((), float("-inf"), device=device)
        self._asked = np.zeros(max_rows, dtype=np.int8)  # PENALTIES, BIAS and HOLD, added up
        self._counts = TokenCounts(max_rows, staging, device)
        self._num_counted = np.full(max_rows, UNCOUNTED, dtype=np.int64)
        self._repetition = np.ones(max_rows, dtype=np.float32)
        self._frequency_presence = np.zeros((2, max_rows), dtype=np.float32)
        self._min_tokens = np.zeros(max_rows, dtype=np.int64)
        self._biases: dict[int, Bias] = {}
        self._sent_bias: tuple[bytes, list[torch.Tensor]] = (b"", [])

    def start(self, planned: PlannedSequence) -> None:
        """Take note of a sequence that just got its row."""
        row, params = planned.row, planned.seq.request.sampling
        self._repetition[row] = params.repetition_penalty
        self._frequency_presence[:, row] = params.frequency_penalty, params.presence_penalty
        self._num_counted[row] = UNCOUNTED
        self._min_tokens[row] = params.min_tokens if planned.seq.stop_token_ids else 0
        if self._biases.pop(row, None):
            self._sent_bias = (b"", [])
        if params.logit_bias:
            ids = np.fromiter(params.logit_bias, np.int64)
            self._biases[row] = ids, np.fromiter(params.logit_bias.values(), np.float32)
        asks = (_has_penalties(params), bool(params.logit_bias), self._min_tokens[row] > 0)
        self._asked[row] = sum(
            flag for flag, asked in zip((PENALTIES, BIAS, HOLD), asks, strict=True) if asked
        )

    def apply(
        self, logits: torch.Tensor, planned: Sequence[PlannedSequence], rows: Ints, masked: Sequence[int] = ()
    ) -> Penalised | None:
        """Change logits in place: [S, vocab].

        Args:
            planned, rows: the sequences that they belong to, and their rows: [S].
            masked: places of those whose mask says whether they may end.

        Returns:
            what `count` needs, if tokens of any of them are to be counted.
        """
        asked = self._asked[rows]
        if not np.count_nonzero(asked):
            return None
        by_any = int(np.bitwise_or.reduce(asked))
        penalised = None
        if by_any & PENALTIES:
            places = np.flatnonzero(asked & PENALTIES)
            self._count_anew([planned[i] for i in places])
            penalised = self._penalise(logits, places, rows[places])
        if by_any & BIAS:
            places = np.flatnonzero(asked & BIAS)
            of_row, ids, values = self._bias(places, rows[places])
            logits.index_put_((of_row, ids), logits[of_row, ids] + values)
        if by_any & HOLD:
            held = set(np.flatnonzero(asked & HOLD).tolist()).difference(masked)
            self._hold([(i, planned[i]) for i in sorted(held)], logits)
        return penalised

    def count(self, penalised: Penalised, tokens: torch.Tensor) -> None:
        """Take note of sampled tokens.

        Args:
            penalised: what `apply` returned.
            tokens: one for each row of the logits, on the device: [S].
        """
        self._num_counted[penalised.rows] += 1
        self._counts.add(penalised.rows, penalised.entries, tokens.index_select(0, penalised.places))

    def _count_anew(self, planned: Sequence[PlannedSequence]) -> None:
        """Count the tokens of those that have just got their row, or got tokens that were not sampled. All are known."""
        planned = [p for p in planned if self._num_counted[p.row] < _num_output(p)]
        if planned:
            rows = [p.row for p in planned]
            self._counts.write(rows, [_counts(p) for p in planned])
            self._num_counted[rows] = [p.seq.num_output for p in planned]

    def _hold(self, planned: Sequence[tuple[int, PlannedSequence]], logits: torch.Tensor) -> None:
        """Take the ends from those that may not end yet.

        Args:
            planned: which may be held, each with its place.
        """
        stops = [
            (i, token)
            for i, p in planned
            if _num_output(p) < self._min_tokens[p.row]
            for token in sorted(p.seq.stop_token_ids)
        ]
        if stops:
            logits.index_put_(tuple(self._staging.send(*np.array(stops).T)), self._lowest)

    def _penalise(self, logits: torch.Tensor, places: Ints, rows: Ints) -> Penalised:
        """Apply penalties in place. What none of the sequences asks for changes nothing, and is left out."""
        ends = self._counts.ends(rows)
        repetition, others = self._repetition[rows], self._frequency_presence[:, rows]
        has_others = bool(others.any())
        sent = self._staging.send(places, rows, ends, repetition, others)
        entries = self._counts.read(sent[1], sent[2], ends, with_counts=has_others)
        at = (sent[0][:, None], entries.ids)
        found = logits[at]
        if np.count_nonzero(repetition != 1):
            factor = sent[3][:, None]
            found = torch.where(found > 0, found / factor, found * factor)
        if entries.counts is not None:
            frequency, presence = sent[4][:, :, None]
            if np.count_nonzero(others[0]):
                found -= frequency * entries.counts
            if np.count_nonzero(others[1]):
                found -= presence * (entries.counts > 0)
        logits.index_put_(at, found)
        return Penalised(rows, sent[0], entries)

    def _bias(self, places: Ints, rows: Ints) -> list[torch.Tensor]:
        """Return at which places, to which tokens, to add what. As long as the same sequences run, it stays on the device."""
        key = places.tobytes() + rows.tobytes()
        if self._sent_bias[0] != key:
            biases = [self._biases[row] for row in rows.tolist()]
            columns = [np.concatenate(parts) for parts in zip(*biases, strict=True)]
            of_row = np.repeat(places, [len(ids) for ids, _ in biases])
            self._sent_bias = key, self._staging.send(of_row, *columns)
        return self._sent_bias[1]


def _num_output(planned: PlannedSequence) -> int:
    """Return how many output tokens come before the one that is to be sampled."""
    return planned.end - planned.seq.prompt_len


def _has_penalties(params: SamplingParams) -> bool:
    return bool(params.repetition_penalty != 1 or params.presence_penalty or params.frequency_penalty)


def _counts(planned: PlannedSequence) -> TokensAndCounts:
    """Return how often each token was generated; those of the prompt, too, if they are to be punished for repetition."""
    seq = planned.seq
    ids, counts = np.unique(seq.output_ids, return_counts=True)
    if seq.request.sampling.repetition_penalty == 1:
        return ids, counts
    others = np.setdiff1d(seq.prompt, ids)
    return np.concatenate([ids, others]), np.concatenate([counts, np.zeros(len(others))])
