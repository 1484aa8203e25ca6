"""Decides which sequences run in each step, and with how many tokens. No tensors, no text.

A step holds one token of each running sequence (decode) and, within a budget of tokens, pieces of prompts
(chunked prefill). Waiting sequences are admitted in the policy's order as long as the memory that the running ones
are expected to need is there. That expectation is a ratio of what they may still generate, which starts low and
sinks with every step (`NewTokenRatio`). Where it was too low and the pool runs full, sequences are retracted: they
lose their pages, keep their tokens, and wait again.

All this is done for each of two classes, one after the other (`deferral`). Live sequences are planned as if there were
no deferrable ones: for what they want, those are retracted first. Deferrable ones get what is left of the step, within
limits.

The loop may be one step ahead: `schedule` may be called while one plan is launched and not yet committed. Sequences
then have a token in flight, of which only the place is known.

Tokens that a sequence's constraint leaves no choice about are appended at once, where none is in flight; the next
step computes them together, as if they were a piece of a prompt.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ..policy import Figures, Ints, SchedulePolicy, Waiting
from ..request import FinishReason, Request, TokenEvent, TokenLogprob
from .admission import MAX_NEW_TOKENS_COUNTED, NewTokenRatio
from .constraint import Constraint
from .deferral import ORDERED_AT_ONCE, Lane, Limits
from .plan import BatchPlan, PlannedSequence, StepResult
from .sequence import SequenceState, Status
from .sequence_pages import SequencePages

logger = logging.getLogger(__name__)

RETRACT_DECODE_STEPS = 20
"""A retraction makes room for so many further tokens of each sequence that stays, as SGLang does."""


class Scheduler:
    """Waiting and running sequences.

    Args:
        pages: where sequences get their pages.
        policy: orders the waiting sequences.
        ratio: the estimate of tokens still to come.
        max_running: most sequences that run.
        prefill_budget: most prompt tokens in one step.
        chunked: a prompt that does not fit into the budget is cut; else it runs alone and whole.
        share: of a step's places and prompt tokens, what deferrable sequences may take beside live ones; 0: none.

    Attributes:
        live, deferrable: the sequences of each class.
        num_retractions: so far, in both.
    """

    def __init__(
        self,
        pages: SequencePages,
        policy: SchedulePolicy,
        ratio: NewTokenRatio,
        *,
        max_running: int,
        prefill_budget: int,
        chunked: bool = True,
        share: float = 0.0,
    ) -> None:
        self.live = Lane(ratio)
        self.deferrable = Lane(copy.copy(ratio), ORDERED_AT_ONCE)
        self.num_retractions = 0
        self._pages = pages
        self._policy = policy
        self._whole = Limits(max_running, prefill_budget)
        self._share = Limits.share_of(self._whole, share)
        self._chunked = chunked
        self._sequences: dict[str, SequenceState] = {}
        self._num_arrived = 0

    def __contains__(self, request_id: str) -> bool:
        """Return whether a request waits or runs."""
        return request_id in self._sequences

    @property
    def has_work(self) -> bool:
        """Whether any sequence waits or runs."""
        return bool(self._sequences)

    @property
    def num_running(self) -> int:
        """How many sequences have a slot and pages."""
        return len(self.live.running) + len(self.deferrable.running)

    @property
    def num_waiting(self) -> int:
        """How many sequences have not."""
        return self.live.num_waiting + self.deferrable.num_waiting

    def add(self, request: Request, constraint: Constraint | None = None) -> None:
        """Let a request wait. It fits into the pool, which the caller has checked."""
        seq = SequenceState(request, self._num_arrived, constraint)
        self._num_arrived += 1
        self._sequences[request.id] = seq
        self._lane(seq).add(seq)

    def abort(self, request_id: str) -> None:
        """End a request without an event. One that is not there is none to end."""
        seq = self._sequences.get(request_id)
        if seq is not None:
            self._finish(seq, FinishReason.ABORT)

    def schedule(self, alone: Limits | None = None) -> BatchPlan:
        """Plan a step. It is empty if nothing can run before the launched one is committed.

        Args:
            alone: what deferrable sequences may take of a step of their own; None: all of it.
        """
        planned = self._plan(self.live, self._whole)
        limits = self._beside(planned) if self.live.is_open else alone or self._whole
        if limits.places and self.deferrable.is_open:
            planned += self._plan(self.deferrable, limits)
        for p in planned:
            p.seq.num_computed = p.end
            p.seq.num_in_flight += p.samples
        planned.sort(key=lambda p: p.count > 1)
        return BatchPlan(tuple(planned), sum(p.count == 1 for p in planned))

    def commit(self, plan: BatchPlan, result: StepResult) -> list[TokenEvent]:
        """Take the result of a launched plan.

        Returns:
            One event for each sampled token that counts: those of sequences that ended meanwhile do not.
        """
        events: list[TokenEvent] = []
        sampled = iter(result.token_ids)
        for p in plan.sequences:
            token_id = next(sampled) if p.samples else None
            if p.seq.status is Status.FINISHED:
                continue
            if p.is_prefill and p.seq.status is Status.RUNNING:
                self._pages.publish(p.seq, p.end)
            if p.seq.prompt_logprobs is not None and (records := result.prompt_logprobs.get(p.seq.id)):
                p.seq.prompt_logprobs.take(p.start, records)
            if token_id is not None:
                events.append(self._take(p.seq, token_id, result.logprobs.get(p.seq.id)))
        return events

    def _take(self, seq: SequenceState, token_id: int, logprob: TokenLogprob | None) -> TokenEvent:
        """Append a sampled token, and what has to follow it."""
        event = TokenEvent(seq.id, [], logprobs=None if logprob is None else [logprob])
        if seq.num_output == 0:
            event.cached_tokens = seq.num_cached or 0
            event.prompt_logprobs = seq.prompt_logprobs.records if seq.prompt_logprobs is not None else None
        seq.num_in_flight -= 1
        self._append(seq, token_id, event)
        while event.finish_reason is None and (forced := seq.jump_token) is not None:
            self._append(seq, forced, event)
        if event.finish_reason is not None:
            self._finish(seq, event.finish_reason)
        return event

    @staticmethod
    def _append(seq: SequenceState, token_id: int, event: TokenEvent) -> None:
        """Append a token to a sequence and to its event, which says whether the sequence ends with it."""
        seq.append(token_id)
        event.token_ids.append(token_id)
        try:
            if seq.constraint is not None:
                seq.constraint.accept(token_id)
        except Exception as error:  # a plugin's: those of one sequence must not end the engine for all
            logger.exception("request %s ends: its grammar does not go on after token %d", seq.id, token_id)
            event.finish_reason = FinishReason.ERROR
            event.error, event.error_kind = f"the grammar failed: {error}", type(error).__name__
        else:
            event.finish_reason = seq.finish_reason_now()
            if event.finish_reason is FinishReason.LENGTH and seq.constraint and seq.constraint.has_ended:
                event.token_ids.pop()  # the end, which an output that was too long does not tell of
                event.logprobs = event.logprobs and event.logprobs[: len(event.token_ids)]

    def _finish(self, seq: SequenceState, reason: FinishReason) -> None:
        if seq.status is Status.RUNNING:
            self._pages.release(seq)
        self._lane(seq).end(seq)
        seq.finish_reason = reason
        del self._sequences[seq.id]

    def _lane(self, seq: SequenceState) -> Lane:
        return self.deferrable if seq.request.deferrable else self.live

    def _beside(self, planned: list[PlannedSequence]) -> Limits:
        """Return what deferrable sequences may take beside these live ones. None is begun while a live one waits."""
        left = self._whole.tokens - sum(p.count for p in planned if p.is_prefill)
        return replace(self._share, tokens=0 if self.live.num_waiting else min(self._share.tokens, left))

    def _plan(self, lane: Lane, limits: Limits) -> list[PlannedSequence]:
        """Plan the next tokens of what runs already, after retracting what there is no room for, and let others run."""
        wanted, budget = self._wanted_tokens(lane, limits)
        retracted = self._retract_until_it_fits(lane, wanted)
        planned = []
        for seq, count in wanted.items():
            if self._pages.extend(seq, seq.num_computed + count):
                planned.append(self._part(seq, count, is_new=False))
        if retracted:
            return planned
        if wanted:
            lane.ratio.decay()
        return planned + self._admit(lane, limits, budget)

    def _wanted_tokens(self, lane: Lane, limits: Limits) -> tuple[dict[SequenceState, int], int]:
        """Return how many tokens of each running sequence could be computed in the next step, and the budget left."""
        ready = [seq for seq in lane.running if not seq.awaits_end][: limits.places]
        num_decoding = sum(seq.is_decoding for seq in ready)
        budget = limits.tokens - limits.tokens_per_place * num_decoding
        wanted = {}
        for seq in ready:
            if seq.is_decoding:
                wanted[seq] = 1
                continue
            room = budget - limits.tokens_per_place
            if room >= seq.num_remaining or (room > 0 and (self._chunked or self._may_exceed(limits))):
                wanted[seq] = min(seq.num_remaining, room) if self._chunked else seq.num_remaining
                budget = room - wanted[seq]
        return wanted, budget

    def _retract_until_it_fits(self, lane: Lane, wanted: dict[SequenceState, int]) -> bool:
        """Retract sequences, removing them from `wanted`, until the step fits; return whether any of the lane was.

        Deferrable ones go before live ones. Of a lane, one stays, unless it waits for the pages of one whose last
        token is in flight. Those that hold pages and get no part of this step may have to go, too.
        """
        needed = self._needed_tokens(wanted)
        while needed > self._pages.num_available_tokens and self._give_way(lane):
            pass
        if needed <= self._pages.num_available_tokens:
            return False
        most_first = lane.most_output_first()
        stays = next(seq for seq in most_first if seq in wanted)
        victims = [seq for seq in most_first if seq is not stays and not seq.awaits_end]
        num_retracted = 0
        while victims and self._lacks_room(wanted):
            victim = victims.pop()
            wanted.pop(victim, None)
            self._retract(lane, victim)
            num_retracted += 1
        if num_retracted:
            before, after = lane.ratio.correct(lane.running)
            logger.info(
                "Decode out of memory happened. #retracted_reqs: %d, #new_token_ratio: %.4f -> %.4f",
                *(num_retracted, before, after),
            )
        return True

    def _lacks_room(self, wanted: dict[SequenceState, int]) -> bool:
        reserve = RETRACT_DECODE_STEPS * len(wanted)
        return self._needed_tokens(wanted) + reserve > self._pages.num_available_tokens

    def _needed_tokens(self, wanted: dict[SequenceState, int]) -> int:
        pages = self._pages
        needed = (pages.num_new_pages(seq, seq.num_computed + count) for seq, count in wanted.items())
        return sum(needed) * pages.page_size

    def _give_way(self, lane: Lane) -> bool:
        """Retract a deferrable sequence for what a live one needs; return whether there was one."""
        if lane is self.deferrable or not self.deferrable.running:
            return False
        self._retract(self.deferrable, self.deferrable.most_output_first()[-1])
        return True

    def _retract(self, lane: Lane, seq: SequenceState) -> None:
        self._pages.release(seq)
        lane.stop(seq)
        self.num_retractions += 1

    def _admit(self, lane: Lane, limits: Limits, budget: int) -> list[PlannedSequence]:
        """Let waiting sequences run, in the policy's order, until one does not fit."""
        planned: list[PlannedSequence] = []
        budget -= limits.tokens_per_place
        if not (lane.num_waiting and budget > 0 and self._has_place(lane, limits)):
            return planned
        reserved = self._reserved_tokens(lane)
        for seq in self.order(lane, budget):
            if budget <= 0 or not self._has_place(lane, limits):
                break
            if seq.num_in_flight or seq.status is not Status.WAITING:
                continue
            count = self._start(seq, limits, budget, reserved)
            if not count:
                break
            planned.append(self._part(seq, count, is_new=True))
            budget -= count + limits.tokens_per_place
            to_store = seq.length - planned[-1].end
            reserved += to_store + min(seq.num_to_come, MAX_NEW_TOKENS_COUNTED)
        return planned

    def order(self, lane: Lane, budget: int = 0) -> list[SequenceState]:
        """Return those that wait in the policy's order."""
        candidates = lane.candidates
        places = self._policy.order(self._waiting(candidates), self._figures(budget)).places
        return [candidates[place] for place in places]

    def _waiting(self, candidates: list[SequenceState]) -> Waiting:
        """Return what a policy sees of sequences that wait."""

        def ints(values: Iterable[int]) -> Ints:
            return np.fromiter(values, np.int64, len(candidates))

        cached = (
            self._pages.cache.match_length(seq.token_ids[: seq.num_reusable], seq.request.cache_salt)
            for seq in candidates
        )
        nothing = np.zeros(len(candidates))
        return Waiting(
            arrival=ints(seq.arrival for seq in candidates),
            waited=nothing,
            time_left=nothing + np.inf,
            priority=ints(seq.priority for seq in candidates),
            num_tokens=ints(seq.num_tokens for seq in candidates),
            num_cached=ints(cached),
            num_to_come=ints(seq.num_to_come for seq in candidates),
            tenant=ints(0 for _ in candidates),
            served=nothing,
            overtaken=ints(0 for _ in candidates),
            request=lambda place: candidates[place].request,
        )

    def _figures(self, budget: int) -> Figures:
        return Figures(
            num_waiting=self.num_waiting,
            num_running=self.num_running,
            num_places=self._whole.places - self.num_running,
            num_free_tokens=self._pages.num_available_tokens,
            num_total_tokens=self._pages.num_total_tokens,
            budget=budget,
        )

    def _has_place(self, lane: Lane, limits: Limits) -> bool:
        taken = len(self.live.running) if lane is self.live else self.num_running
        return taken < self._whole.places and len(lane.running) < limits.places

    def _reserved_tokens(self, lane: Lane) -> float:
        """Return for how many tokens those that run are expected to need pages: live ones only, for a live one."""
        lanes = (self.live,) if lane is self.live else (self.live, self.deferrable)
        return sum(each.ratio.expected_tokens(each.running, self._pages.page_size) for each in lanes)

    def _start(self, seq: SequenceState, limits: Limits, budget: int, reserved: float) -> int:
        """Give a waiting sequence its first pages; return how many tokens it computes, 0 if it has to wait."""
        lane = self._lane(seq)
        if self.num_running == self._whole.places:
            self._give_way(lane)
        self._pages.attach(seq)
        fits = self._fits(seq, reserved)
        count = seq.num_remaining
        if count > budget:
            if self._chunked:
                count = budget
            else:
                is_first = budget == limits.tokens - limits.tokens_per_place
                fits = fits and is_first and self._may_exceed(limits)
        if not fits or not self._extend(lane, seq, seq.num_computed + count):
            self._pages.release(seq)
            return 0
        if seq.num_cached is None:
            seq.num_cached = seq.num_computed
        lane.start(seq)
        return count

    def _fits(self, seq: SequenceState, reserved: float) -> bool:
        """Return whether there is room for a sequence that has a row. For a live one, deferrable ones do not count."""
        is_live = not seq.request.deferrable
        if not (self.live.running if is_live else self.num_running):
            return True
        available = self._pages.num_available_tokens
        if is_live and self.deferrable.running:
            available = self._pages.num_total_tokens - self._pages.num_held_tokens([*self.live.running, seq])
        return seq.num_remaining + min(seq.num_to_come, MAX_NEW_TOKENS_COUNTED) <= available - reserved

    def _may_exceed(self, limits: Limits) -> bool:
        """Return whether one sequence may compute more than the limit, where prompts are not cut: not as a share."""
        return limits.tokens == self._whole.tokens or not self.live.is_open

    def _extend(self, lane: Lane, seq: SequenceState, num_tokens: int) -> bool:
        """Give a sequence pages; return whether there were enough."""
        while not self._pages.extend(seq, num_tokens):
            if not self._give_way(lane):
                return False
        return True

    @staticmethod
    def _part(seq: SequenceState, count: int, *, is_new: bool) -> PlannedSequence:
        return PlannedSequence(
            seq=seq,
            row=seq.row,
            start=seq.num_computed,
            count=count,
            samples=count == seq.num_remaining,
            is_new=is_new,
            is_prefill=is_new or count > 1 or seq.length == seq.prompt_len,
        )
