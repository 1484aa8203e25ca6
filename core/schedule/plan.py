"""What one step is to do, and what came of it, as plain data: between the scheduler and the model runner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from llmfw.core.base.request import TokenLogprob

from .sequence import SequenceState
from .sequence_table import Indices, Ints

Bools = npt.NDArray[np.bool_]


@dataclass(slots=True)
class PlannedSequence:
    """One sequence's part of a step.

    Attributes:
        seq: the sequence. The runner reads its tokens and sampling parameters and changes nothing.
        row: its row of the page table and of the device's per-sequence state.
        start, count: tokens [start, start + count) are computed in this step.
        samples: the token after them is sampled, because these are the last ones.
        is_new: this is the first step since the sequence got its row.
        is_prefill: these are tokens of a prompt (or what a retraction threw away), not the last sampled one.
        drafts: the last ones of the `count` tokens, where they are guessed: after each of them, and after the one before
            them, a token is sampled.
    """

    seq: SequenceState
    row: int
    start: int
    count: int
    samples: bool
    is_new: bool
    is_prefill: bool
    drafts: Sequence[int] = ()

    @property
    def end(self) -> int:
        """The first token that is not computed."""
        return self.start + self.count

    @property
    def each(self) -> list[PlannedSequence]:
        """The same up to each token after which one is sampled, as if it were the last."""
        num = len(self.drafts)
        return [replace(self, count=self.count - num + i, drafts=self.drafts[:i]) for i in range(num + 1)]


class BatchPlan:
    """One step, B sequences, as columns. Sequences with one token come first.

    Args:
        sequences: in the order in which their tokens are packed: B of them.
        indices: theirs in the table, for as long as they have not ended: [B].
        rows, starts, counts, samples, is_new, is_prefill: as of `PlannedSequence`: [B].
        drafts: those of sequences that have any, by place.

    Attributes:
        num_single: how many sequences, from the first on, have one token.
        num_sampling: how many sample.
        num_tokens: computed in this step.
    """

    __slots__ = (
        "_parts",
        "_prefills",
        "counts",
        "drafts",
        "indices",
        "is_new",
        "is_prefill",
        "num_sampling",
        "num_single",
        "num_tokens",
        "rows",
        "samples",
        "sequences",
        "starts",
    )

    def __init__(
        self,
        sequences: Sequence[SequenceState],
        indices: Indices,
        rows: Ints,
        starts: Ints,
        counts: Ints,
        samples: Bools,
        is_new: Bools,
        is_prefill: Bools,
        drafts: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        self.sequences = sequences
        self.indices = indices
        self.rows = rows
        self.starts = starts
        self.counts = counts
        self.samples = samples
        self.is_new = is_new
        self.is_prefill = is_prefill
        self.drafts = drafts or {}
        num = len(sequences)
        self.num_single = int(np.count_nonzero(counts == 1))
        self.num_sampling = int(np.count_nonzero(samples))
        self.num_tokens = num if self.num_single == num else int(counts.sum())
        self._parts: tuple[PlannedSequence, ...] | None = None
        self._prefills: list[PlannedSequence] | None = None

    @classmethod
    def of(cls, parts: Iterable[PlannedSequence]) -> BatchPlan:
        """Return the plan of these parts, those with one token first."""
        parts = sorted(parts, key=lambda part: part.count > 1)

        def ints(values: Iterable[int]) -> Ints:
            return np.fromiter(values, np.int64, len(parts))

        return cls(
            sequences=[part.seq for part in parts],
            indices=ints(part.seq.index for part in parts),
            rows=ints(part.row for part in parts),
            starts=ints(part.start for part in parts),
            counts=ints(part.count for part in parts),
            samples=ints(part.samples for part in parts) > 0,
            is_new=ints(part.is_new for part in parts) > 0,
            is_prefill=ints(part.is_prefill for part in parts) > 0,
            drafts={place: part.drafts for place, part in enumerate(parts) if part.drafts},
        )

    @property
    def parts(self) -> tuple[PlannedSequence, ...]:
        """The same, sequence by sequence."""
        if self._parts is None:
            lists = (column.tolist() for column in self._columns())
            self._parts = tuple(map(PlannedSequence, self.sequences, *lists))
            for place, tokens in self.drafts.items():
                self._parts[place].drafts = tokens
        return self._parts

    @property
    def prefills(self) -> list[PlannedSequence]:
        """The parts that compute tokens of a prompt, in order: few of many, mostly."""
        if self._prefills is None:
            self._prefills = [
                PlannedSequence(self.sequences[i], *(column[i].item() for column in self._columns()))
                for i in self.is_prefill.nonzero()[0].tolist()
            ]
        return self._prefills

    @property
    def sampling(self) -> list[SequenceState]:
        """The sequences that sample, in order."""
        if self.num_sampling == len(self.sequences):
            return list(self.sequences)
        return [seq for seq, samples in zip(self.sequences, self.samples.tolist(), strict=True) if samples]

    @property
    def is_decode(self) -> bool:
        """Whether each sequence computes one token, and samples the next."""
        return self.num_single == self.num_sampling == len(self.sequences)

    @property
    def sampled(self) -> list[PlannedSequence]:
        """The parts that sample, in order; one with drafts once for each token that is sampled."""
        parts = [part for part in self.parts if part.samples]
        return [each for part in parts for each in part.each] if self.drafts else parts

    @property
    def num_sampled(self) -> Ints:
        """How many tokens each sequence samples: [B]."""
        num = self.samples.astype(np.int64)
        for place, tokens in self.drafts.items():
            num[place] += len(tokens)
        return num

    @property
    def num_drafted(self) -> int:
        """How many of them are guessed."""
        return sum(map(len, self.drafts.values()))

    @property
    def needs_last_tokens(self) -> bool:
        """Whether masks of this step depend on tokens of the launched step before it."""
        return any(
            samples and seq.num_in_flight > 1 and seq.constraint.needs_next_token
            for seq, samples in zip(self.sequences, self.samples.tolist(), strict=True)
            if seq.constraint is not None
        )

    def _columns(self) -> tuple[npt.NDArray[Any], ...]:
        return self.rows, self.starts, self.counts, self.samples, self.is_new, self.is_prefill


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a launched plan gave.

    Attributes:
        token_ids: sampled tokens, one for each planned sequence that samples, in order, and one more for each draft.
        logprobs: of these tokens, for requests that ask, by their id.
        prompt_logprobs: of the prompt tokens that follow the computed ones, for requests that ask, by their id.
    """

    token_ids: Sequence[int]
    logprobs: Mapping[str, Sequence[TokenLogprob]] = field(default_factory=dict)
    prompt_logprobs: Mapping[str, Sequence[TokenLogprob]] = field(default_factory=dict)
