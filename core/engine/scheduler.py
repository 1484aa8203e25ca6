"""Decides which sequences run in each step, and with how many tokens. No tensors, no text.

A step holds one token of each running sequence (decode) and, within a budget of tokens, pieces of prompts
(chunked prefill). Waiting sequences are admitted in the policy's order as long as the memory that the running ones
are expected to need is there. That expectation is a ratio of what they may still generate, which starts low and
sinks with every step (`NewTokenRatio`). Where it was too low and the pool runs full, sequences are retracted: they
lose their pages, keep their tokens, and wait again.

The loop may be one step ahead: `schedule` may be called while one plan is launched and not yet committed. Sequences
then have a token in flight, of which only the place is known.

Tokens that a sequence's constraint leaves no choice about are appended at once, where none is in flight; the next
step computes them together, as if they were a piece of a prompt.
"""

from __future__ import annotations

import logging

from ..policy import SchedulePolicy
from ..request import FinishReason, Request, TokenEvent, TokenLogprob
from .admission import MAX_NEW_TOKENS_COUNTED, NewTokenRatio
from .constraint import Constraint
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
        max_running: most sequences in one step.
        prefill_budget: most prompt tokens in one step.
        chunked: a prompt that does not fit into the budget is cut; else it runs alone and whole.
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
    ) -> None:
        self.waiting: list[SequenceState] = []
        self.running: list[SequenceState] = []
        self.num_retractions = 0
        self._pages = pages
        self._policy = policy
        self._ratio = ratio
        self._max_running = max_running
        self._prefill_budget = prefill_budget
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

    def add(self, request: Request, constraint: Constraint | None = None) -> None:
        """Let a request wait. It fits into the pool, which the caller has checked."""
        seq = SequenceState(request, self._num_arrived, constraint)
        self._num_arrived += 1
        self._sequences[request.id] = seq
        self.waiting.append(seq)

    def abort(self, request_id: str) -> None:
        """End a request without an event. One that is not there is none to end."""
        seq = self._sequences.get(request_id)
        if seq is not None:
            self._finish(seq, FinishReason.ABORT)

    def schedule(self) -> BatchPlan:
        """Plan a step. It is empty if nothing can run before the launched one is committed."""
        planned, retracted = self._plan_running()
        if not retracted:
            budget = self._prefill_budget - sum(p.count for p in planned if p.is_prefill)
            planned += self._admit(budget)
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
            self.running.remove(seq)
        else:
            self.waiting.remove(seq)
        seq.status = Status.FINISHED
        seq.finish_reason = reason
        del self._sequences[seq.id]

    def _plan_running(self) -> tuple[list[PlannedSequence], bool]:
        """Plan the next tokens of what runs already, after retracting what there is no room for."""
        wanted = self._wanted_tokens()
        retracted = self._retract_until_it_fits(wanted)
        planned = []
        for seq, count in wanted.items():
            if self._pages.extend(seq, seq.num_computed + count):
                planned.append(self._part(seq, count, is_new=False))
        if wanted and not retracted:
            self._ratio.decay()
        return planned, retracted

    def _wanted_tokens(self) -> dict[SequenceState, int]:
        """Return how many tokens of each running sequence could be computed in the next step."""
        budget = self._prefill_budget
        wanted = {}
        for seq in self.running:
            if seq.awaits_end:
                continue
            if seq.num_remaining == 1:
                wanted[seq] = 1
            elif budget > 0:
                wanted[seq] = min(seq.num_remaining, budget) if self._chunked else seq.num_remaining
                budget -= wanted[seq]
        return wanted

    def _retract_until_it_fits(self, wanted: dict[SequenceState, int]) -> bool:
        """Retract sequences, removing them from `wanted`, until the step fits; return whether any was.

        Those with the fewest output tokens go first, among them those with the longest prompt: the least work
        is lost for the most room. One stays, unless it waits for the pages of one whose last token is in flight.
        Those that hold pages and get no part of this step's budget may have to go, too.
        """
        if self._needed_tokens(wanted) <= self._pages.num_available_tokens:
            return False
        most_first = sorted(self.running, key=lambda seq: (-seq.num_output, seq.prompt_len, seq.arrival))
        stays = next(seq for seq in most_first if seq in wanted)
        victims = [seq for seq in most_first if seq is not stays and not seq.awaits_end]
        num_retracted = 0
        while victims and self._lacks_room(wanted):
            victim = victims.pop()
            wanted.pop(victim, None)
            self._retract(victim)
            num_retracted += 1
        if num_retracted:
            before, after = self._ratio.correct(self.running)
            self.num_retractions += num_retracted
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

    def _retract(self, seq: SequenceState) -> None:
        self._pages.release(seq)
        self.running.remove(seq)
        seq.status = Status.WAITING
        self.waiting.append(seq)

    def _admit(self, budget: int) -> list[PlannedSequence]:
        """Let waiting sequences run, in the policy's order, until one does not fit."""
        planned: list[PlannedSequence] = []
        if not self.waiting or budget <= 0 or len(self.running) >= self._max_running:
            return planned
        reserved = self._ratio.expected_tokens(self.running, self._pages.page_size)
        for seq in self._policy.order(self.waiting, self._pages.cache):
            if len(self.running) >= self._max_running or budget <= 0:
                break
            assert isinstance(seq, SequenceState)
            if seq.num_in_flight or seq.status is not Status.WAITING:
                continue
            count = self._start(seq, budget, reserved)
            if not count:
                break
            planned.append(self._part(seq, count, is_new=True))
            budget -= count
            to_store = seq.length - planned[-1].end
            reserved += to_store + min(seq.num_to_come, MAX_NEW_TOKENS_COUNTED)
        if planned:
            admitted = {p.seq for p in planned}
            self.waiting = [seq for seq in self.waiting if seq not in admitted]
        return planned

    def _start(self, seq: SequenceState, budget: int, reserved: float) -> int:
        """Give a waiting sequence its first pages; return how many tokens it computes, 0 if it has to wait."""
        self._pages.attach(seq)
        needed = seq.num_remaining + min(seq.num_to_come, MAX_NEW_TOKENS_COUNTED)
        fits = not self.running or needed <= self._pages.num_available_tokens - reserved
        count = seq.num_remaining
        if count > budget:
            if self._chunked:
                count = budget
            else:
                fits = fits and budget == self._prefill_budget  # whole, and alone
        if not fits or not self._pages.extend(seq, seq.num_computed + count):
            self._pages.release(seq)
            return 0
        if seq.num_cached is None:
            seq.num_cached = seq.num_computed
        seq.status = Status.RUNNING
        self.running.append(seq)
        return count

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
