"""A step while it is planned: what was decided so far, in the order in which it was."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .plan import BatchPlan
from .sequence import SequenceState
from .sequence_table import Indices, SequenceTable


class Draft:
    """Gathers the parts of a step.

    Args:
        table: the numbers of all sequences.

    Attributes:
        num_prompt_tokens: of pieces so far.
    """

    def __init__(self, table: SequenceTable) -> None:
        self.num_prompt_tokens = 0
        self._table = table
        self._decoding: list[Indices] = []
        self._pieces: list[tuple[SequenceState, int]] = []
        self._drafted: dict[int, Sequence[int]] = {}  # by index

    @property
    def decoding(self) -> Indices:
        """The sequences that compute their last token, a sampled one: [n]."""
        if len(self._decoding) == 1:
            return self._decoding[0]
        return np.concatenate([np.empty(0, np.intp), *self._decoding])

    @property
    def holds_prompts(self) -> bool:
        """Whether there are pieces of prompts, or of what a retraction threw away: more than tokens that were forced."""
        return any(seq.is_new or seq.num_computed < seq.prompt_len for seq, _ in self._pieces)

    @property
    def has_decoding(self) -> bool:
        """Whether any sequence computes its last token, a sampled one."""
        return any(len(indices) for indices in self._decoding)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was decided."""
        return not self._pieces and not self.has_decoding

    def decode(self, indices: Indices) -> None:
        """Let each of these sequences compute its last token, a sampled one, so that the next one is sampled."""
        self._decoding.append(indices)

    def add_piece(self, seq: SequenceState, count: int) -> None:
        """Let a sequence compute so many tokens."""
        self._pieces.append((seq, count))
        self.num_prompt_tokens += count

    def add_drafted(self, seq: SequenceState, tokens: Sequence[int]) -> None:
        """Let a sequence that decodes compute these tokens, too, which may come after its last one."""
        self._drafted[seq.index] = tokens

    def launch(self) -> BatchPlan:
        """Return the plan, and count its tokens as computed, or in flight, from now on."""
        table, decoding = self._table, self.decoding
        if not (self._pieces or self._drafted):
            return self._launch_decoding(decoding)
        pieces = sorted(self._pieces, key=lambda piece: piece[1] > 1)
        if self._drafted:
            decoding = decoding[~np.isin(decoding, list(self._drafted))]
        others = [*(seq.index for seq, _ in pieces), *self._drafted]
        indices = np.concatenate([decoding, np.array(others, np.intp)])
        counts = np.ones(len(indices), dtype=np.int64)
        counts[len(decoding) : len(decoding) + len(pieces)] = [count for _, count in pieces]
        starts, lengths = table.num_computed[indices], table.length[indices]
        is_new = table.is_new[indices] == 1
        samples = counts == lengths - starts
        is_prefill = is_new | ~samples | (counts > 1) | (lengths == table.prompt_len[indices])
        drafts = dict(enumerate(self._drafted.values(), len(indices) - len(self._drafted)))
        for place, tokens in drafts.items():
            counts[place] += len(tokens)
        table.num_computed[indices] += counts
        table.num_in_flight[indices] += samples
        table.length[indices] += samples
        table.is_new[indices] = 0
        sequences = table.sequences(indices)
        columns = (table.row[indices], starts, counts, samples, is_new, is_prefill)
        return BatchPlan(sequences, indices, *columns, drafts=drafts)

    def _launch_decoding(self, indices: Indices) -> BatchPlan:
        """Return the plan of these sequences alone: nearly every step is such a one, and little is to be found out."""
        table, num = self._table, len(indices)
        starts = table.num_computed[indices]
        for column in (table.num_computed, table.num_in_flight, table.length):
            column[indices] += 1
        nothing = np.zeros(num, dtype=np.bool_)
        return BatchPlan(
            sequences=table.sequences(indices),
            indices=indices,
            rows=table.row[indices],
            starts=starts,
            counts=np.ones(num, dtype=np.int64),
            samples=np.ones(num, dtype=np.bool_),
            is_new=nothing,
            is_prefill=nothing,
        )
