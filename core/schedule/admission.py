"""Admission: starts waiting sequences, in the policy's order, while enough pages remain for their tokens."""

from __future__ import annotations

import numpy as np

from .adapter_gate import AdapterGate
from .deferral import Lane, Limits
from .new_token_ratio import MAX_NEW_TOKENS_COUNTED
from .plan_builder import PlanBuilder
from .policy_adapter import PolicyAdapter
from .prefix_leaders import PrefixLeaders
from .retraction import Retraction
from .sequence import SequenceState
from .sequence_pages import SequencePages
from .sequence_table import Indices
from .step_budget import StepBudget
from .trace import DecisionTrace

NO_SLOT = "its adapter waits for a slot"


class Admission:
    """Admits waiting sequences.

    Args:
        pages: source of the sequences' pages.
        live, deferrable: the sequences of each class (see `deferral`).
        adapter: calls the policy.
        gate: passes over sequences whose adapters are not in slots.
        retraction: retracts deferrable sequences if live ones need their rows, pages or slots.
        leaders: chooses the sequences that wait for a prefix that another sequence computes.
        whole: maximum number of sequences and prompt tokens in a step.
        trace: receives each decision; None: decisions are not traced.
    """

    def __init__(
        self,
        pages: SequencePages,
        live: Lane,
        deferrable: Lane,
        adapter: PolicyAdapter,
        gate: AdapterGate,
        retraction: Retraction,
        leaders: PrefixLeaders,
        whole: Limits,
        trace: DecisionTrace | None,
    ) -> None:
        self._pages = pages
        self._table = pages.numbers
        self._live = live
        self._deferrable = deferrable
        self._adapter = adapter
        self._gate = gate
        self._retraction = retraction
        self._leaders = leaders
        self._whole = whole
        self._trace = trace

    def admit(self, lane: Lane, budget: StepBudget, builder: PlanBuilder) -> None:
        """Start a lane's waiting sequences, in the policy's order, until one does not fit.

        Also stops when the step's token budget is spent. Sequences that the policy holds back are not
        started, except for the first one if no sequence runs. Sequences whose adapters have no slot are
        passed over.

        Args:
            budget: rest of the step's token budget; the started sequences' tokens are subtracted.
            builder: builder of the step, to which the started sequences' tokens are added.
        """
        if not lane.num_waiting:
            return
        if reason := self._why_closed(lane, budget):
            lane.why_waiting = reason
            if self._trace is not None:
                self._trace_waits(lane.queue.indices[self._adapter.order(lane).places], reason)
            return
        order = self._adapter.order(lane, budget.tokens)
        indices = lane.queue.indices[order.places]  # a copy: the queue changes
        num_open = len(indices) - order.num_held
        if not (num_open or self._num_running):
            num_open = 1
        reserved = self._reserved_tokens(lane)
        admitted: list[int] = []
        passed_over: list[int] = []
        refused: set[int] = set()  # their adapters; one look at each is enough
        num_looked_at = 0
        reason = "the policy holds it"
        for index in indices[:num_open]:
            if reason := self._why_closed(lane, budget):
                break
            num_looked_at += 1
            seq = self._table.at(int(index))
            if seq.num_in_flight:
                continue
            adapter = int(self._table.adapter[index])
            if adapter and (adapter in refused or not self._has_slot(seq)):
                refused.add(adapter)
                passed_over.append(seq.index)
                continue
            count = self._start(lane, seq, budget, reserved)
            if count is None:
                reason = f"no room for {seq.num_tokens} tokens and those to come"
                num_looked_at -= 1
                break
            if count:
                builder.add_piece(seq, count)
                budget.take(seq, count)
            admitted.append(seq.index)
            reserved += seq.length - seq.num_computed - count + min(seq.num_to_come, MAX_NEW_TOKENS_COUNTED)
        if passed_over and not admitted and self._gate.stop_keeping():
            self.admit(lane, budget, builder)
            return
        lane.queue.count_overtaken(admitted)
        if passed_over:
            self._trace_waits(np.array(passed_over, dtype=np.intp), NO_SLOT)
        lane.why_waiting = reason or (NO_SLOT if passed_over else "")
        self._trace_waits(indices[num_looked_at:], reason)

    def _has_slot(self, seq: SequenceState) -> bool:
        """Return whether a waiting sequence needs no adapter, or its adapter is in a slot."""
        if self._gate.admits(seq):
            return True
        if unneeded := self._gate.unneeded(seq):
            self._retraction.retract(self._deferrable, unneeded, "a live request needs the adapter's slot")
        return bool(unneeded) and self._gate.admits(seq)

    @property
    def _num_running(self) -> int:
        return self._live.num_running + self._deferrable.num_running

    def _why_closed(self, lane: Lane, budget: StepBudget) -> str:
        """Return the reason why no sequence of a lane can be admitted; "" if a sequence might fit."""
        if budget.is_spent:
            return "the step's budget of prompt tokens is spent"
        taken = lane.num_running if lane is self._live else self._num_running
        if taken < self._whole.places and lane.num_running < budget.limits.places:
            return ""
        return f"no place: {self._num_running} requests run"

    def _trace_waits(self, indices: Indices, reason: str) -> None:
        """Trace the reasons why sequences wait.

        Args:
            indices: table indices of waiting sequences, in the policy's order.
            reason: reason why the first sequence waits; the later sequences wait because others come first.
        """
        if self._trace is not None:
            for num_ahead, seq in enumerate(self._table.sequences(indices)):
                self._trace.waits(seq, reason if num_ahead == 0 else "others come first", num_ahead)

    def _reserved_tokens(self, lane: Lane) -> float:
        """Return the number of tokens that running sequences are expected to need beyond their pages.

        For the live lane, only live sequences count.
        """
        lanes = (self._live,) if lane is self._live else (self._live, self._deferrable)
        size = self._pages.page_size
        return sum(each.ratio.expected_tokens(self._table, each.running_indices, size) for each in lanes)

    def _start(self, lane: Lane, seq: SequenceState, budget: StepBudget, reserved: float) -> int | None:
        """Try to admit a waiting sequence: give it a row and its first pages.

        Returns:
            The number of tokens that the sequence computes in this step (0 if it follows another sequence);
            None if it does not fit and must wait.
        """
        if self._num_running == self._whole.places:
            self._retraction.give_way(lane)
        self._pages.attach(seq)
        seq.is_cut = seq.num_remaining > self._whole.tokens or seq.prompt_logprobs is not None
        if self._fits(seq, reserved):
            count = 0 if self._leaders.follows(seq) else budget.first_piece(seq)
            if count and self._pages.images is not None and budget.chunked:
                count = self._pages.images.fit(seq, count)
            if count is not None and self._extend(lane, seq, seq.num_computed + count):
                if count:
                    self._leaders.lead(seq)
                lane.start(seq)
                if self._table.adapter[seq.index]:
                    self._gate.start(seq)
                self._pages.count_found(seq)
                if self._trace is not None:
                    self._trace.admitted(seq)
                return count
        self._pages.release(seq)
        return None

    def _fits(self, seq: SequenceState, reserved: float) -> bool:
        """Return whether the pages suffice for a sequence that already has a row.

        For a live sequence, pages of deferrable sequences count as available. A sequence always fits if no
        other sequence runs; a live sequence also fits if no other live sequence runs.
        """
        is_live = not seq.request.deferrable
        if not (self._live.num_running if is_live else self._num_running):
            return True
        available = self._pages.num_available_tokens
        if is_live and self._deferrable.num_running:
            available = self._pages.num_total_tokens - self._pages.num_held_tokens([*self._live.running, seq])
        return seq.num_remaining + min(seq.num_to_come, MAX_NEW_TOKENS_COUNTED) <= available - reserved

    def _extend(self, lane: Lane, seq: SequenceState, num_tokens: int) -> bool:
        """Give a sequence pages for its first `num_tokens` tokens; return whether there were enough.

        For a live sequence, retracts deferrable sequences until there are enough pages.
        """
        while not self._pages.extend(seq, num_tokens):
            if not self._retraction.give_way(lane):
                return False
        return True
