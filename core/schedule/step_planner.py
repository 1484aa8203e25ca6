"""Fills one step: what runs already, after retracting what there is no room for, and then who is let in.

It knows policy, pages and lanes. It does not know how sequences come and end, nor what a launched step gives.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from .admission import MAX_NEW_TOKENS_COUNTED
from .deferral import Lane, Limits
from .draft import Draft
from .plan import BatchPlan
from .policy_desk import PolicyDesk
from .retraction import Retraction
from .sequence import SequenceState, Status
from .sequence_pages import SequencePages
from .sequence_table import Indices
from .trace import DecisionTrace

if TYPE_CHECKING:
    from .speculation import Speculation

LEAST_FOLLOWED = 32
"""A sequence follows another one only where that saves it so many tokens: it may lose a step by it."""


@dataclass(slots=True)
class _Rest:
    """What of one step is left for a lane.

    Attributes:
        limits: of the lane in this step.
        tokens: prompt tokens left.
        piece: of these, for prompts that do not fit into a step whole, while others decode; None: all.
    """

    limits: Limits
    tokens: int
    piece: int | None

    def take(self, seq: SequenceState, count: int) -> None:
        self.tokens -= count + self.limits.tokens_per_place
        if seq.is_long and self.piece is not None:
            self.piece -= count

    def room_for(self, seq: SequenceState) -> int:
        """Return how many tokens a sequence may compute, if its prompt may be cut."""
        room = min(seq.num_remaining, self.tokens - self.limits.tokens_per_place)
        return min(room, self.piece) if seq.is_long and self.piece is not None else room


class StepPlanner:
    """Plans one step after the other.

    Args:
        pages: where sequences get their pages.
        live, deferrable: the sequences of each class.
        desk: asks the policy.
        whole: most sequences and prompt tokens of a step.
        share: of these, for deferrable sequences beside live ones.
        chunked: a prompt that does not fit into the budget is cut; else it runs alone and whole.
        trace: is told of each decision; None: nobody is.
        speculation: adds drafts to steps; None: nobody does.
    """

    def __init__(
        self,
        pages: SequencePages,
        live: Lane,
        deferrable: Lane,
        desk: PolicyDesk,
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
        self._desk = desk
        self._retraction = Retraction(pages, live, deferrable, desk, whole.places, trace)
        self._whole = whole
        self._share = share
        self._chunked = chunked
        self._trace = trace
        self._speculation = speculation

    @property
    def num_retractions(self) -> int:
        """So far."""
        return self._retraction.num_retractions

    def plan(self, alone: Limits | None, piece: int | None, *, may_be_empty: bool) -> BatchPlan:
        """Return the next step, as `Scheduler.schedule` says.

        Args:
            may_be_empty: a launched step is not committed yet.
        """
        draft = Draft(self._table)
        left = self._fill(self._live, self._whole, piece, draft)
        if self._deferrable.is_open:
            limits = self._beside(draft) if self._live.is_open else alone or self._whole
            if limits.places:
                self._fill(self._deferrable, limits, left, draft)
        if draft.is_empty and not may_be_empty:
            self._lead_one(alone or self._whole, draft)
        if self._speculation is not None:
            # A step of deferrable ones that is to be short stays so.
            is_free = not self._live.is_open and alone in (None, self._whole)
            self._speculation.add_to(draft, self._pages, self._num_running, with_deferrable=is_free)
        return draft.launch()

    @property
    def _num_running(self) -> int:
        return self._live.num_running + self._deferrable.num_running

    def _lane(self, seq: SequenceState) -> Lane:
        return self._deferrable if seq.request.deferrable else self._live

    def _beside(self, draft: Draft) -> Limits:
        """Return what deferrable sequences may take beside these live ones. None is begun while a live one waits."""
        left = self._whole.tokens - draft.num_prompt_tokens
        tokens = 0 if self._live.num_waiting else min(self._share.tokens, left)
        return replace(self._share, tokens=tokens)

    def _fill(self, lane: Lane, limits: Limits, piece: int | None, draft: Draft) -> int | None:
        """Plan the next tokens of what runs already, and let others run; return what is left of the piece."""
        self._retraction.preempt(lane)
        decoding, prefilling = self._ready(lane, limits)
        rest = _Rest(limits, limits.tokens - limits.tokens_per_place * len(decoding), piece)
        if piece is not None and not (len(decoding) or draft.has_decoding):
            rest.piece = max(1, self._whole.tokens // 2) if self._has_short(lane) else None
        pieces = self._pieces(prefilling, rest)
        decoding, has_retracted = self._retraction.make_room(lane, decoding, pieces)
        draft.decode(decoding)
        for seq, count in pieces.items():
            if self._pages.extend(seq, seq.num_computed + count):
                draft.add_piece(seq, count)
        if not has_retracted:
            if len(decoding) or pieces:
                lane.ratio.decay()
            self._admit(lane, rest, draft)
        return rest.piece

    def _has_short(self, lane: Lane) -> bool:
        """Return whether one waits that fits into a step: it goes past a long one that runs or comes before it."""
        indices = lane.queue.indices
        left = self._table.length[indices] - self._table.num_cached[indices]
        return bool((left <= self._whole.tokens).any())

    def _ready(self, lane: Lane, limits: Limits) -> tuple[Indices, list[SequenceState]]:
        """Return which running sequences compute a sampled token next, and which tokens of a prompt."""
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

    def _pieces(self, prefilling: list[SequenceState], rest: _Rest) -> dict[SequenceState, int]:
        """Return how many prompt tokens of running sequences could be computed in the next step."""
        pieces: dict[SequenceState, int] = {}
        for seq in prefilling:
            if rest.tokens <= 0:
                break
            if self._follows(seq):
                continue
            count = rest.room_for(seq)
            if not self._chunked and count > 0:
                count = (
                    seq.num_remaining if count == seq.num_remaining or self._may_exceed(rest.limits) else 0
                )
            if count > 0:
                self._lead(seq)
                pieces[seq] = count
                rest.take(seq, count)
        return pieces

    def _follows(self, seq: SequenceState) -> bool:
        """Return whether a sequence waits for tokens that another one computes; give it what came into the cache.

        One that leads goes on: two that wait for each other would wait for ever.
        """
        if seq.watch is None or seq.num_pages > seq.num_shared_pages:
            return False
        if seq.watch.num_tokens > seq.num_computed:
            self._pages.advance(seq)
        if seq.watch.leads:
            return False
        least = (
            LEAST_FOLLOWED if seq.status is Status.WAITING else 1
        )  # one that began to follow goes on to its end
        return self._pages.cache.num_awaited(seq.watch, self._rank(seq)) >= least

    def _lead(self, seq: SequenceState) -> None:
        if seq.watch is not None:
            self._pages.cache.lead(seq.watch, self._rank(seq))

    @staticmethod
    def _rank(seq: SequenceState) -> int:
        """Return how a sequence ranks: a live one does not wait for what a deferrable one computes, which may pause."""
        return 1 if seq.request.deferrable else 2

    def _lead_one(self, limits: Limits, draft: Draft) -> None:
        """Let one go on where all follow: whom they followed is paused, or gone."""
        for seq in [*self._live.running, *self._deferrable.running]:
            if seq.num_remaining and not seq.awaits_end:
                count = min(seq.num_remaining, limits.tokens) if self._chunked else seq.num_remaining
                if self._pages.extend(seq, seq.num_computed + count):
                    self._lead(seq)
                    draft.add_piece(seq, count)
                    return

    def _admit(self, lane: Lane, rest: _Rest, draft: Draft) -> None:
        """Let waiting sequences run, in the policy's order, until one does not fit."""
        if not lane.num_waiting:
            return
        if reason := self._why_closed(lane, rest):
            if self._trace is not None:
                self._tell_waits(lane.queue.indices[self._desk.order(lane).places], reason)
            return
        order = self._desk.order(lane, rest.tokens)
        indices = lane.queue.indices[order.places]  # a copy: the queue changes
        num_open = len(indices) - order.num_held
        if not (num_open or self._num_running):
            num_open = 1
        reserved = self._reserved_tokens(lane)
        admitted: list[int] = []
        num_looked_at = 0
        reason = "the policy holds it"
        for index in indices[:num_open]:
            if reason := self._why_closed(lane, rest):
                break
            num_looked_at += 1
            seq = self._table.at(int(index))
            if seq.num_in_flight:
                continue
            count = self._start(lane, seq, rest, reserved)
            if count is None:
                reason = f"no room for {seq.num_tokens} tokens and those to come"
                num_looked_at -= 1
                break
            if count:
                draft.add_piece(seq, count)
                rest.take(seq, count)
            admitted.append(seq.index)
            reserved += seq.length - seq.num_computed - count + min(seq.num_to_come, MAX_NEW_TOKENS_COUNTED)
        lane.queue.count_overtaken(admitted)
        self._tell_waits(indices[num_looked_at:], reason)

    def _why_closed(self, lane: Lane, rest: _Rest) -> str:
        """Return why no sequence of a lane can be admitted, whichever it is; "" if one can."""
        if rest.tokens - rest.limits.tokens_per_place <= 0:
            return "the step's budget of prompt tokens is spent"
        taken = lane.num_running if lane is self._live else self._num_running
        if taken < self._whole.places and lane.num_running < rest.limits.places:
            return ""
        return f"no place: {self._num_running} requests run"

    def _tell_waits(self, indices: Indices, reason: str) -> None:
        """Tell the trace why these wait, the first of them first."""
        if self._trace is not None:
            for num_ahead, seq in enumerate(self._table.sequences(indices)):
                self._trace.waits(seq, reason if num_ahead == 0 else "others come first", num_ahead)

    def _reserved_tokens(self, lane: Lane) -> float:
        """Return for how many tokens those that run are expected to need pages: live ones only, for a live one."""
        lanes = (self._live,) if lane is self._live else (self._live, self._deferrable)
        size = self._pages.page_size
        return sum(each.ratio.expected_tokens(self._table, each.running_indices, size) for each in lanes)

    def _start(self, lane: Lane, seq: SequenceState, rest: _Rest, reserved: float) -> int | None:
        """Give a waiting sequence its first pages.

        Returns:
            How many tokens it computes, 0 if it follows another one; None if it has to wait.
        """
        if self._num_running == self._whole.places:
            self._retraction.give_way(lane)
        self._pages.attach(seq)
        seq.is_long = seq.num_remaining > self._whole.tokens
        if self._fits(seq, reserved):
            count = 0 if self._follows(seq) else self._first_piece(seq, rest)
            if count is not None and self._extend(lane, seq, seq.num_computed + count):
                if count:
                    self._lead(seq)
                lane.start(seq)
                self._pages.count_found(seq)
                if self._trace is not None:
                    self._trace.admitted(seq)
                return count
        self._pages.release(seq)
        return None

    def _first_piece(self, seq: SequenceState, rest: _Rest) -> int | None:
        """Return how many tokens a sequence that begins computes; None: it has to wait for a step of its own."""
        count = rest.room_for(seq)
        if self._chunked or count == seq.num_remaining:
            return max(count, 0)
        is_first = rest.tokens == rest.limits.tokens
        return seq.num_remaining if is_first and self._may_exceed(rest.limits) else None

    def _fits(self, seq: SequenceState, reserved: float) -> bool:
        """Return whether there is room for a sequence that has a row. For a live one, deferrable ones do not count."""
        is_live = not seq.request.deferrable
        if not (self._live.num_running if is_live else self._num_running):
            return True
        available = self._pages.num_available_tokens
        if is_live and self._deferrable.num_running:
            available = self._pages.num_total_tokens - self._pages.num_held_tokens([*self._live.running, seq])
        return seq.num_remaining + min(seq.num_to_come, MAX_NEW_TOKENS_COUNTED) <= available - reserved

    def _may_exceed(self, limits: Limits) -> bool:
        """Return whether one sequence may compute more than the limit, where prompts are not cut: not as a share."""
        return limits.tokens == self._whole.tokens or not self._live.is_open

    def _extend(self, lane: Lane, seq: SequenceState, num_tokens: int) -> bool:
        """Give a sequence pages; return whether there were enough."""
        while not self._pages.extend(seq, num_tokens):
            if not self._retraction.give_way(lane):
                return False
        return True
