"""Collects the decoding sequences, pieces of prompts and drafts of one step, and builds its plan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from llmfw.core.base.step import NO_STEP

from .plan import BatchPlan
from .sequence import SequenceState
from .sequence_pages import SequencePages
from .sequence_table import Indices
from .step_writer import write_decode, write_step


class PlanBuilder:
    """Builds the plan of one step.

    `StepPlanner` creates a builder for each step, adds the sequences, and calls `launch` once.

    Args:
        pages: pages of all sequences.

    Attributes:
        num_prompt_tokens: number of tokens added so far by `add_piece`.
    """

    def __init__(self, pages: SequencePages) -> None:
        self.num_prompt_tokens = 0
        self._pages = pages
        self._decoding: list[Indices] = []
        self._pieces: list[tuple[SequenceState, int]] = []
        self._drafted: dict[int, Sequence[int]] = {}  # by table index

    @property
    def decoding(self) -> Indices:
        """Indices of the decoding sequences in the table: [n]."""
        if len(self._decoding) == 1:
            return self._decoding[0]
        return np.concatenate([np.empty(0, np.intp), *self._decoding])

    @property
    def holds_prompts(self) -> bool:
        """Whether any added piece holds prompt tokens, or tokens to recompute after a retraction."""
        return any(seq.is_new or seq.num_computed < seq.prompt_len for seq, _ in self._pieces)

    @property
    def has_decoding(self) -> bool:
        """Whether any sequence decodes."""
        return bool(self._decoding)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was added."""
        return not (self._pieces or self._decoding)

    def decode(self, indices: Indices) -> None:
        """Add decoding sequences. Each sequence computes its last sampled token and samples the next one."""
        if len(indices):
            self._decoding.append(indices)

    def add_piece(self, seq: SequenceState, count: int) -> None:
        """Add a piece: the next `count` tokens of a sequence that does not decode."""
        self._pieces.append((seq, count))
        self.num_prompt_tokens += count

    def add_drafted(self, seq: SequenceState, tokens: Sequence[int]) -> None:
        """Add drafted tokens after the last token of a decoding sequence."""
        self._drafted[seq.index] = tokens

    def launch(self) -> BatchPlan:
        """Return the plan, and update its sequences as if the step had been launched.

        The plan's tokens count as computed, and the tokens to sample count as in flight.
        """
        if self.is_empty:
            nothing = np.empty(0, dtype=np.bool_)
            return BatchPlan(NO_STEP, (), np.empty(0, np.intp), nothing, nothing)
        if not (self._pieces or self._drafted):
            return self._launch_decoding(self.decoding)
        table, decoding = self._pages.numbers, self.decoding
        pieces = sorted(self._pieces, key=lambda piece: piece[1] > 1)
        if self._drafted:
            decoding = decoding[~np.isin(decoding, list(self._drafted))]
        others = [*(seq.index for seq, _ in pieces), *self._drafted]
        indices = np.concatenate([decoding, np.array(others, np.intp)])
        counts = np.ones(len(indices), dtype=np.int64)
        counts[len(decoding) : len(decoding) + len(pieces)] = [count for _, count in pieces]
        starts, lengths = table.num_computed[indices], table.length[indices]
        is_new = table.is_new[indices] == 1
        samples = (counts == lengths - starts).astype(np.int64)
        is_prefill = is_new | (samples == 0) | (counts > 1) | (lengths == table.prompt_len[indices])
        drafts = dict(enumerate(self._drafted.values(), len(indices) - len(self._drafted)))
        num_sampled = samples.copy()
        for place, tokens in drafts.items():
            counts[place] += len(tokens)
            num_sampled[place] += len(tokens)
        sequences = table.sequences(indices)
        step = write_step(
            *(self._pages, indices, sequences, starts, counts, num_sampled, is_prefill, drafts),
            num_decoding=len(decoding),
        )
        table.num_computed[indices] += counts
        table.num_in_flight[indices] += samples
        table.length[indices] += samples
        table.is_new[indices] = 0
        return BatchPlan(step, sequences, indices, is_new, is_prefill, drafts)

    def _launch_decoding(self, indices: Indices) -> BatchPlan:
        """Launch a plan that holds only these decoding sequences, and return the plan."""
        table = self._pages.numbers
        step = write_decode(self._pages, indices)
        for column in (table.num_computed, table.num_in_flight, table.length):
            column[indices] += 1
        nothing = np.zeros(len(indices), dtype=np.bool_)
        return BatchPlan(step, table.sequences(indices), indices, nothing, nothing)
