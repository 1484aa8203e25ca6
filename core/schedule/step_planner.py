"""Plans one step: retracts running sequences if necessary, plans the others, then admits waiting ones.

The planner handles only pages and the two lanes (see `deferral`). `Scheduler` adds and ends sequences, and
commits the results of steps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .adapter_gate import AdapterGate
from .admission import Admission
from .deferral import Lane, Limits
from .plan import BatchPlan
from .plan_builder import PlanBuilder
from .policy_adapter import PolicyAdapter
from .prefix_leaders import PrefixLeaders
from .retraction import Retraction
from .sequence import SequenceState
from .sequence_pages import SequencePages
from .sequence_table import Indices
from .step_budget import StepBudget
from .trace import DecisionTrace

if TYPE_CHECKING:
    from .speculation import Speculation


class StepPlanner:
    """Plans the engine's steps one after another.

    Args:
        pages: source of the sequences' pages.
        live, deferrable: the sequences of each class (see `deferral`).
        adapter: calls the policy.
        gate: decides which adapters are in slots.
        whole: maximum number of sequences and prompt tokens in a step.
        share: limits of deferrable sequences in a step with live ones.
        chunked: whether to split a prompt that exceeds the budget over several steps; if not, the prompt runs
            alone and in full.
        trace: receives each decision; None: decisions are not traced.
        speculation: adds drafts to steps; None: no drafts.
    """

    def __init__(
        self,
        pages: SequencePages,
        live: Lane,
        deferrable: Lane,
        adapter: PolicyAdapter,
        gate: AdapterGate,
        *,
        whole: Limits,
        share: Limits,
        chunked: bool,
        trace: DecisionTrace | None,
        speculation: Speculation | None = None,
    ) -> None:
        self._pages = pages
        self._table = pages.numbers
        self._live = live
        self._deferrable = deferrable
        self._retraction = Retraction(pages, live, deferrable, adapter, gate, whole.places, trace)
        self._leaders = PrefixLeaders(pages)
        self._admission = Admission(
            pages, live, deferrable, adapter, gate, self._retraction, self._leaders, whole, trace
        )
        self._whole = whole
        self._share = share
        self._chunked = chunked
        self._speculation = speculation

    @property
    def num_retractions(self) -> int:
        """Number of retractions since start."""
        return self._retraction.num_retractions

    def plan(
        self, alone: Limits | None, piece: int | None, *, score_cost: float = 1.0, may_be_empty: bool
    ) -> BatchPlan:
        """Return the plan of the next step; see `Scheduler.schedule`.

        Args:
            may_be_empty: whether the plan may be empty, because a launched step is not committed yet.
        """
        builder = PlanBuilder(self._pages)
        if self._pages.images is not None:
            self._pages.images.begin()
        left = self._fill(self._live, self._whole, piece, score_cost, builder)
        if self._deferrable.is_open:
            limits = self._beside(builder) if self._live.is_open else alone or self._whole
            if limits.places:
                self._fill(self._deferrable, limits, left, score_cost, builder)
        if builder.is_empty and not may_be_empty:
            self._lead_one(alone or self._whole, builder)
        if self._speculation is not None:
            # With lowered limits, deferrable sequences get no drafts, so that the step stays short.
            is_free = not self._live.is_open and alone in (None, self._whole)
            self._speculation.add_to(builder, self._pages, self._num_running, with_deferrable=is_free)
        return builder.launch()

    @property
    def _num_running(self) -> int:
        return self._live.num_running + self._deferrable.num_running

    def _beside(self, builder: PlanBuilder) -> Limits:
        """Return the limits for deferrable sequences in a step that also has live sequences (see `deferral`).

        They get their share of the step, but not more prompt tokens than the live sequences leave. While a
        live sequence waits, they get no prompt tokens.
        """
        left = self._whole.tokens - builder.num_prompt_tokens
        tokens = 0 if self._live.num_waiting else min(self._share.tokens, left)
        return replace(self._share, tokens=tokens)

    def _fill(
        self, lane: Lane, limits: Limits, piece: int | None, score_cost: float, builder: PlanBuilder
    ) -> int | None:
        """Plan the running sequences of a lane, and admit waiting ones.

        Returns:
            The number of tokens left for split prompts (see `StepBudget.piece`); None: no limit.
        """
        self._retraction.preempt(lane)
        decoding, prefilling = self._ready(lane, limits)
        if self._pages.images is not None:
            self._pages.images.note_decoding(len(decoding))
        budget = StepBudget(
            limits,
            limits.tokens - limits.tokens_per_place * len(decoding),
            piece,
            chunked=self._chunked,
            may_exceed=limits.tokens == self._whole.tokens or not self._live.is_open,
            score_cost=score_cost,
        )
        if piece is not None and not (len(decoding) or builder.has_decoding):
            budget.piece = max(1, self._whole.tokens // 2) if self._has_short(lane) else None
            budget.weighs_piece = True
        pieces = self._pieces(prefilling, budget)
        decoding, has_retracted = self._retraction.make_room(lane, decoding, pieces)
        builder.decode(decoding)
        for seq, count in pieces.items():
            if self._pages.extend(seq, seq.num_computed + count):
                builder.add_piece(seq, count)
        if not has_retracted:
            if len(decoding) or pieces:
                lane.ratio.decay()
            self._admission.admit(lane, budget, builder)
        return budget.piece

    def _has_short(self, lane: Lane) -> bool:
        """Return whether any waiting sequence has a prompt that need not be split.

        Such a prompt may be computed before split prompts.
        """
        indices = lane.queue.indices
        left = self._table.length[indices] - self._table.num_cached[indices]
        return bool(((left <= self._whole.tokens) & (self._table.is_scored[indices] == 0)).any())

    def _ready(self, lane: Lane, limits: Limits) -> tuple[Indices, list[SequenceState]]:
        """Return a lane's running sequences that can be in the next step, within the lane's limits.

        Returns:
            The table indices of the sequences that decode; and the sequences that compute prompt tokens or
            forced tokens.
        """
        table, indices = self._table, lane.running_indices
        length, in_flight = table.length[indices], table.num_in_flight[indices]
        if np.count_nonzero(in_flight):
            goes_on = (in_flight == 0) | (length < table.max_len[indices])
            indices, length = indices[goes_on], length[goes_on]
        indices, length = indices[: limits.places], length[: limits.places]
        is_decoding = (length - table.num_computed[indices] == 1) & (length > table.prompt_len[indices])
        is_decoding &= table.is_new[indices] == 0
        if np.count_nonzero(is_decoding) == len(indices):
            return indices, []
        return indices[is_decoding], table.sequences(indices[~is_decoding])

    def _pieces(self, prefilling: list[SequenceState], budget: StepBudget) -> dict[SequenceState, int]:
        """Return how many prompt tokens each of these sequences computes next, if pages are available."""
        pieces: dict[SequenceState, int] = {}
        for seq in prefilling:
            if budget.tokens <= 0:
                break
            if self._leaders.follows(seq):
                continue
            count = self._with_images(seq, budget.next_piece(seq))
            if count > 0:
                self._leaders.lead(seq)
                pieces[seq] = count
                budget.take(seq, count)
        return pieces

    def _with_images(self, seq: SequenceState, count: int) -> int:
        """Return how many of a sequence's next `count` tokens fit the step's limit on encoded images."""
        images = self._pages.images
        return count if images is None or not self._chunked else images.fit(seq, count)

    def _lead_one(self, limits: Limits, builder: PlanBuilder) -> None:
        """Let one running sequence compute, although it follows another sequence.

        Needed if all running sequences follow others: for example, if their leader is paused or has ended.
        """
        for seq in [*self._live.running, *self._deferrable.running]:
            if seq.num_remaining and not seq.awaits_end:
                count = min(seq.num_remaining, limits.tokens) if self._chunked else seq.num_remaining
                count = self._with_images(seq, count)
                if count and self._pages.extend(seq, seq.num_computed + count):
                    self._leaders.lead(seq)
                    builder.add_piece(seq, count)
                    return
