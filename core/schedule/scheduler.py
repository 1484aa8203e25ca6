"""Decides which sequences run in each step, and with how many tokens. No tensors, no text.

A step holds one token of each running sequence (decode) and, within a budget of tokens, pieces of prompts (chunked
prefill). The scheduler admits waiting sequences in the policy's order while the memory that the running ones are expected
to need is available. That expectation is a ratio of the tokens that they may still generate; it starts low and falls with
every step (`NewTokenRatio`). If it was too low and the pool is full, the scheduler retracts sequences: they lose their
pages, keep their tokens, and wait again.

It plans each of two classes in turn (`deferral`). Live sequences are planned as if there were no deferrable ones, which
are retracted first if live ones need their place or pages. Deferrable sequences get the rest of the step, within limits.

A sequence whose next tokens another sequence is computing follows that one: it runs, but computes nothing until the
tokens are in the cache. So simultaneous requests with one long prefix compute it once.

The loop may be one step ahead: it may call `schedule` while one plan is launched and not yet committed. Sequences then
have a token in flight, of which only the position is known.

Tokens that a sequence's constraint forces are appended at once if no token is in flight; the next step computes them
together, like a piece of a prompt.
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
from .policy_adapter import PolicyAdapter
from .sequence import SequenceState, Status
from .sequence_pages import SequencePages
from .step_planner import StepPlanner
from .tenants import PROMPT_WEIGHT, Tenants
from .trace import DecisionTrace

if TYPE_CHECKING:
    from .speculation import Speculation

PUBLISHED_AT_ONCE = 512
"""Least number of tokens of a prompt in pieces that go to the cache at once, except the last ones. A node for each small
piece would make a chain of thousands of nodes, which each further piece would have to traverse."""


class Scheduler:
    """Waiting and running sequences.

    Args:
        pages: source of the sequences' pages.
        policy: orders the waiting sequences.
        ratio: estimate of tokens still to come.
        max_running: maximum number of running sequences.
        prefill_budget: maximum number of prompt tokens in one step.
        chunked: whether to cut a prompt that does not fit into the budget; if not, it runs alone and in full.
        share: share of a step's places and prompt tokens that deferrable sequences may take next to live ones; 0: none.
        clock: clock in seconds, from any start.
        trace: receives each decision; None: none is traced.
        speculation: adds drafts to steps, each of which must be committed before the next is planned; None: no drafts.

    Attributes:
        live, deferrable: the sequences of each class.
        tenants: usage counters of the tenants.
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
        self._desk = PolicyAdapter(policy, pages, self.live, self.deferrable, self.tenants, whole, clock)
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
        """Number of sequences that have a slot and pages."""
        return self.live.num_running + self.deferrable.num_running

    @property
    def num_waiting(self) -> int:
        """Number of sequences without a slot."""
        return self.live.num_waiting + self.deferrable.num_waiting

    @property
    def num_retractions(self) -> int:
        """Number of retractions since start, of both classes."""
        return self._planner.num_retractions

    @property
    def policy(self) -> SchedulePolicy:
        """Policy that orders the waiting sequences. It may change between two steps."""
        return self._desk.policy

    @policy.setter
    def policy(self, policy: SchedulePolicy) -> None:
        self._desk.policy = policy

    def add(self, request: Request, constraint: Constraint | None = None) -> None:
        """Add a waiting request. The caller has checked that it fits into the pool."""
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
        """End a request without an event. Ignores unknown ids."""
        seq = self._sequences.get(request_id)
        if seq is not None:
            self._finish(seq, FinishReason.ABORT)

    def schedule(
        self, alone: Limits | None = None, piece: int | None = None, *, score_cost: float = 1.0
    ) -> BatchPlan:
        """Plan a step. It is empty if nothing can run before the launched one is committed.

        Args:
            alone: limits of deferrable sequences in a step without live ones; None: the whole step.
            piece: maximum number of prompt tokens, in total, of prompts that are cut while others decode
                (`SequenceState.is_cut`); None: no limit.
            score_cost: number of tokens that a prompt token counts as if its log probability is requested.
        """
        assert self._speculation is None or not self._num_launched, "drafts need tokens that are known"
        self._pages.take_moved()
        plan = self._planner.plan(alone, piece, score_cost=score_cost, may_be_empty=self._num_launched > 0)
        self._num_launched += bool(plan.sequences)
        self._note_first(plan)
        if self._trace is not None and plan.sequences:
            self._trace.planned(plan)
        return plan

    def commit(self, plan: BatchPlan, output: StepOutput) -> list[TokenEvent]:
        """Take the output of a launched plan.

        Returns:
            One event for each sequence that sampled and has not ended meanwhile.
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
        """Take back a plan that could not be launched, so that its tokens count as not computed. Call `give_up` next.

        Earlier launched plans may be committed in between.
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
        """Return a lane's waiting sequences, in the policy's order."""
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
