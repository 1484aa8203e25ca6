"""The plan of one step: its sequences and its `StepInput`.

The scheduler keeps the plan until the step is committed. Only `BatchPlan.step` is passed to the executor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from llmfw.core.base.step import Ints, StepInput

from .sequence import SequenceState
from .sequence_table import Indices

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class PlannedSequence:
    """One sequence's part of a step.

    Attributes:
        seq: the sequence.
        row: the sequence's row of the page table.
        start, count: range of tokens that this step computes: [start, start + count).
        samples: whether the step samples the next token, because the range ends with the sequence's last
            token.
        is_new: whether this is the first step since the sequence got its row.
        is_prefill: whether the tokens are prompt tokens, forced tokens or tokens recomputed after a
            retraction. False if the tokens are the last sampled token and its drafts.
        drafts: drafted tokens, which are the last of the `count` tokens. A token is sampled after each
            drafted token, and after the token before the first draft.
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
        """Position after the last computed token."""
        return self.start + self.count


class BatchPlan:
    """Plan of one step of B sequences. Sequences with one token come first.

    Args:
        step: input of the step.
        sequences: the B sequences, in the order in which their tokens are packed.
        indices: indices of the sequences in the table, valid until they end: [B].
        is_new, is_prefill: flags as in `PlannedSequence`: [B].
        drafts: drafted tokens of the sequences that have any, by index into `sequences`.

    Attributes:
        prefills: the sequences that compute prompt tokens, in order; usually only a few of the step's sequences.
    """

    __slots__ = ("drafts", "indices", "is_new", "is_prefill", "prefills", "sequences", "step")

    def __init__(
        self,
        step: StepInput,
        sequences: Sequence[SequenceState],
        indices: Indices,
        is_new: Bools,
        is_prefill: Bools,
        drafts: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        self.step = step
        self.sequences = sequences
        self.indices = indices
        self.is_new = is_new
        self.is_prefill = is_prefill
        self.drafts = drafts or {}
        self.prefills = [self._part(place) for place in is_prefill.nonzero()[0].tolist()]

    @property
    def rows(self) -> Ints:
        """Page table row of each sequence: [B]."""
        return self.step.rows

    @property
    def starts(self) -> Ints:
        """Position of each sequence's first token in this step: [B]."""
        return self.step.starts

    @property
    def counts(self) -> Ints:
        """Number of tokens that each sequence computes in this step: [B]."""
        return self.step.counts

    @property
    def samples(self) -> Bools:
        """Whether each sequence samples a token: [B]."""
        return self.step.num_sampled > 0

    @property
    def num_tokens(self) -> int:
        """Number of tokens computed in this step."""
        return self.step.num_tokens

    @property
    def num_sampling(self) -> int:
        """Number of sequences that sample a token."""
        return self.step.num_sampling

    @property
    def is_decode(self) -> bool:
        """Whether each sequence computes one token, and samples the next."""
        return self.step.is_decode

    @property
    def parts(self) -> list[PlannedSequence]:
        """The plan as one `PlannedSequence` per sequence, in order."""
        return [self._part(place) for place in range(len(self.sequences))]

    @property
    def sampling(self) -> list[SequenceState]:
        """The sequences that sample a token, in order."""
        if self.num_sampling == len(self.sequences):
            return list(self.sequences)
        return [seq for seq, samples in zip(self.sequences, self.samples.tolist(), strict=True) if samples]

    @property
    def num_drafted(self) -> int:
        """Number of drafted tokens in this step."""
        return sum(map(len, self.drafts.values()))

    @property
    def needs_last_tokens(self) -> bool:
        """Whether this step's masks depend on tokens of the previous, not yet committed step."""
        return any(
            samples and seq.num_in_flight > 1 and seq.constraint.needs_next_token
            for seq, samples in zip(self.sequences, self.samples.tolist(), strict=True)
            if seq.constraint is not None
        )

    def _part(self, place: int) -> PlannedSequence:
        step = self.step
        return PlannedSequence(
            self.sequences[place],
            int(step.rows[place]),
            int(step.starts[place]),
            int(step.counts[place]),
            bool(step.num_sampled[place]),
            bool(self.is_new[place]),
            bool(self.is_prefill[place]),
            self.drafts.get(place, ()),
        )
