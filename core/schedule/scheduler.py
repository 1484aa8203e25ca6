"""Decides which sequences run in each step, and with how many tokens. No tensors, no text.

A step holds one token of each running sequence (decode) and, within a budget of tokens, pieces of prompts
(chunked prefill). Waiting sequences are admitted in the policy's order as long as the memory that the running ones
are expected to need is there. That expectation is a ratio of what they may still generate, which starts low and
sinks with every step (`NewTokenRatio`). Where it was too low and the pool runs full, sequences are retracted: they
lose their pages, keep their tokens, and wait again.

All this is done for each of two classes, one after the other (`deferral`). Live sequences are planned as if there were
no deferrable ones: for what they want, those are retracted first. Deferrable ones get what is left of the step, within
limits.

A sequence whose next tokens another one is computing follows that one: it runs, and computes nothing until they are in
the cache. So requests that come together with one long prefix compute it once.

The loop may be one step ahead: `schedule` may be called while one plan is launched and not yet committed. Sequences
then have a token in flight, of which only the place is known.

Tokens that a sequence's constraint leaves no choice about are appended at once, where none is in flight; the next
step computes them together, as if they were a piece of a prompt.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from llmfw.core.base.request import FinishReason, Request, TokenEvent
from llmfw.core.base.step import StepOutput
from llmfw.core.interfaces.policy import SchedulePolicy

from .constraint import Constraint
from .deferral import Lane, Limits
from .new_token_ratio import NewTokenRatio
from .outputs import kept_tokens, take_sampled
from .plan import BatchPlan
from .policy_desk import PolicyDesk
from .sequence import SequenceState, Status
from .sequence_pages import SequencePages
from .step_planner import StepPlanner
from .tenants import PROMPT_WEIGHT, Tenants
from .trace import DecisionTrace

if TYPE_CHECKING:
    from .speculation import Speculation

PUBLISHED_AT_ONCE = 512
"""Of a prompt in pieces at least so many tokens go to the cache at once, but for the last ones: a node for each small
piece would make a chain of thousands, which each further piece has to walk along."""


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
        clock: seconds, from any start.
        trace: is told of each decision; None: nobody is.
        speculation: adds drafts to steps, each of which is then committed before the next is planned; None: nobody does.

    Attributes:
        live, deferrable: the sequences of each class.
        tenants: what each has had.
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
        clock: Callable[[], float] = time.monotonic,
        trace: DecisionTrace | None = None,
        speculation: Speculation | None = None,
    ) -> None:
        self._table = pages.numbers
        self.live = Lane(ratio, self._table)
        self.deferrable = Lane(copy.copy(ratio), self._table)
        self.tenants = Tenants()
        whole = Limits(max_running, prefill_budget)
        self._desk = PolicyDesk(policy, pages, self.live, self.deferrable, self.tenants, whole, clock)
        self._planner = StepPlanner(
            pages,
            self.live,
            self.deferrable,
            self._desk,
            whole=whole,
            share=Limits.share_of(whole, share),
            chunked=chunked,
            trace=trace,
            speculation=speculation,
        )
        self._speculation = speculation
        self._pages = pages
        self._clock = clock
        self._trace = trace
        self._sequences: dict[str, SequenceState] = {}
        self._num_arrived = 0
        self._num_launched = 0

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
        return self.live.num_running + self.deferrable.num_running

    @property
    def num_waiting(self) -> int:
        """How many sequences have not."""
        return self.live.num_waiting + self.deferrable.num_waiting

    @property
    def num_retractions(self) -> int:
        """So far, of both classes."""
        return self._planner.num_retractions

    @property
    def policy(self) -> SchedulePolicy:
        """What orders the waiting sequences. It may be another one from one step to the next."""
        return self._desk.policy

    @policy.setter
    def policy(self, policy: SchedulePolicy) -> None:
        self._desk.policy = policy

    def add(self, request: Request, constraint: Constraint | None = None) -> None:
        """Let a request wait. It fits into the pool, which the caller has checked."""
        seq = SequenceState(request, self._num_arrived, constraint, self._table)
        self._num_arrived += 1
        self._sequences[request.id] = seq
        seq.tenant = self.tenants.join(
            request.tenant, deferrable=request.deferrable, is_key=request.tenant_is_key
        )
        now = self._table.came_at[seq.index] = self._clock()
        if request.timeout_s is not None:
            self._table.deadline[seq.index] = now + request.timeout_s
        self._pages.watch(seq)
        self._lane(seq).add(seq)
        if self._trace is not None:
            self._trace.arrived(seq)

    def abort(self, request_id: str) -> None:
        """End a request without an event. One that is not there is none to end."""
        seq = self._sequences.get(request_id)
        if seq is not None:
            self._finish(seq, FinishReason.ABORT)

    def schedule(self, alone: Limits | None = None, piece: int | None = None) -> BatchPlan:
        """Plan a step. It is empty if nothing can run before the launched one is committed.

        Args:
            alone: what deferrable sequences may take of a step of their own; None: all of it.
            piece: most prompt tokens, in all, of prompts that do not fit into a step whole, while others decode; None:
                any number.
        """
        assert self._speculation is None or not self._num_launched, "drafts need tokens that are known"
        self._pages.take_moved()
        plan = self._planner.plan(alone, piece, may_be_empty=self._num_launched > 0)
        self._num_launched += bool(plan.sequences)
        self._note_first(plan)
        if self._trace is not None and plan.sequences:
            self._trace.planned(plan)
        return plan

    def commit(self, plan: BatchPlan, output: StepOutput) -> list[TokenEvent]:
        """Take the output of a launched plan.

        Returns:
            One event for each sequence that sampled: those that ended meanwhile have none.
        """
        self._num_launched -= 1
        for p in plan.prefills:
            if p.seq.status is Status.FINISHED:
                continue
            if p.seq.status is Status.RUNNING:
                if p.samples or p.end - self._pages.num_shared_tokens(p.seq) >= PUBLISHED_AT_ONCE:
                    self._pages.publish(p.seq, p.end)
                if p.samples:
                    self._pages.unwatch(p.seq)
            if p.seq.prompt_logprobs is not None and (records := output.prompt_logprobs.get(p.row)):
                p.seq.prompt_logprobs.take(p.start, records)
        kept = kept_tokens(plan, output.token_ids) if plan.drafts else []
        if self._speculation is not None and kept:
            self._speculation.learn(plan, kept)
        events, ends = take_sampled(plan, output, self._table, self.tenants, kept)
        for seq, reason in ends:
            self._finish(seq, reason)
        return events

    def withdraw(self, plan: BatchPlan) -> None:
        """Take a plan back that could not be launched: what it was to compute is not computed. `give_up` comes next.

        What was launched before it may be committed in between.
        """
        self._num_launched -= 1
        table, indices = self._table, plan.indices
        table.num_computed[indices] -= plan.counts
        table.num_in_flight[indices] -= plan.samples
        table.length[indices] -= plan.samples
        self._pages.spoil(plan.rows)

    def give_up(self, plan: BatchPlan) -> list[str]:
        """End the requests of a plan that was withdrawn; return their ids."""
        left = [seq for seq in plan.sequences if seq.status is not Status.FINISHED]
        for seq in left:
            self._finish(seq, FinishReason.ERROR)
        return [seq.id for seq in left]

    def order(self, lane: Lane) -> list[SequenceState]:
        """Return those of a lane that wait, in the policy's order."""
        self._pages.take_moved()
        return self._table.sequences(lane.queue.indices[self._desk.order(lane).places])

    def _finish(self, seq: SequenceState, reason: FinishReason) -> None:
        if seq.status is Status.RUNNING:
            self._pages.release(seq)
        self._pages.unwatch(seq)
        if self._speculation is not None:
            self._speculation.forget(seq)
        self._lane(seq).end(seq)
        self.tenants.leave(seq.tenant)
        seq.finish_reason = reason
        if self._trace is not None:
            self._trace.ended(seq, reason.value)
        del self._sequences[seq.id]
        self._table.remove(seq.index)

    def _lane(self, seq: SequenceState) -> Lane:
        return self.deferrable if seq.request.deferrable else self.live

    def _note_first(self, plan: BatchPlan) -> None:
        """Take note of what was cached of sequences that compute for the first time, and of what tenants get."""
        prefills = plan.prefills
        for p in prefills:
            if p.seq.num_cached_first is None:
                p.seq.num_cached_first = p.start
        if prefills:
            tenants = self._table.tenant[plan.indices[plan.is_prefill]]
            self.tenants.charge(tenants, plan.counts[plan.is_prefill] * np.float64(PROMPT_WEIGHT))
