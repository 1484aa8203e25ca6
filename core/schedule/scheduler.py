"""The scheduler: decides which sequences run in each step, and how many tokens each computes.

A step holds one token of each running sequence (decode) and, within a token budget, pieces of prompts
(chunked prefill). The scheduler admits waiting sequences in the policy's order while enough pages remain for
the tokens that running sequences are expected to generate. Their number is estimated as a fraction of the
tokens that these sequences may still generate; the fraction falls with every step (`NewTokenRatio`). If the
estimate was too low and the pool is full, the scheduler retracts sequences: they lose their pages, keep their
tokens, and wait again.

The scheduler plans two classes in turn (`deferral`). Live sequences are planned as if there were no
deferrable ones, which are retracted first if live ones need their rows or pages. Deferrable sequences get the
rest of the step, within limits.

If sequence A is already computing the next tokens of sequence B, then B follows A: B runs, but computes
nothing until the tokens are in the cache. So simultaneous requests with a common long prefix compute it only
once.

The engine loop may be one step ahead: it may call `schedule` while one plan is launched and not yet
committed. Sequences then have a token in flight: its position is known, but its value is not.

Tokens that a sequence's constraint forces are appended at once if no token is in flight; the next step
computes them together, like a piece of a prompt.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from llmfw.core.base.request import FinishReason, Request, TokenEvent
from llmfw.core.base.step import NO_PROCESSORS, AskedProcessors, StepOutput
from llmfw.core.base.steps_view import StepsView
from llmfw.core.interfaces.policy import SchedulePolicy

from .adapter_gate import AdapterGate
from .constraint import Constraint
from .deferral import Lane, Limits
from .new_token_ratio import NewTokenRatio
from .outputs import NOT_FINITE, errors_in, kept_tokens, take_sampled
from .plan import BatchPlan
from .policy_adapter import PolicyAdapter
from .sequence import SequenceState, Status
from .sequence_pages import SequencePages
from .sequence_states import taken_in
from .slot_assignment import SlotAssignment
from .step_planner import StepPlanner
from .step_watch import MAX_WAITING, StepWatch
from .tenants import PROMPT_WEIGHT, Tenants
from .token_gaps import TokenGaps
from .trace import DecisionTrace

if TYPE_CHECKING:
    from .speculation import Speculation

logger = logging.getLogger(__name__)

MAX_NAMED = 10  # requests named in one log line
PUBLISHED_AT_ONCE = 512
"""Minimum number of tokens that an unfinished prompt adds to the prefix cache at once. If each small piece
became a node, a long prompt would become a chain of thousands of nodes, and adding each further piece would
have to traverse the chain."""


class Scheduler:
    """Manages waiting and running sequences, and plans the engine's steps.

    Args:
        pages: source of the sequences' pages.
        policy: policy that orders the waiting sequences.
        ratio: estimate of the tokens that running sequences will still need.
        max_running: maximum number of running sequences.
        prefill_budget: maximum number of prompt tokens in one step.
        chunked: whether to split a prompt that exceeds the budget over several steps; if not, the prompt runs
            alone and in full.
        share: maximum share (0 to 1) of a step's sequences and prompt tokens for deferrable sequences if live
            ones run.
        clock: monotonic clock in seconds.
        trace: receives each decision; None: decisions are not traced.
        speculation: adds drafts to steps; None: no drafts. With drafts, each step must be committed before
            the next is planned.
        slots: which adapters are in the model's slots; None: it has none.

    Attributes:
        live, deferrable: the sequences of each class (see `deferral`).
        tenants: usage counters of the tenants.
        gaps: times between the tokens of sequences.
        num_prompt_tokens, num_prompt_cached: number of prompt tokens of all sequences that had a first step,
            and the number of these tokens that came from the cache.
        num_drafted_output: number of drafted tokens that became output.
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
        slots: SlotAssignment | None = None,
    ) -> None:
        self._table = pages.numbers
        self.live = Lane(ratio, self._table)
        self.deferrable = Lane(copy.copy(ratio), self._table)
        self.tenants = Tenants()
        self.gaps = TokenGaps(self._table)
        self.num_prompt_tokens = self.num_prompt_cached = self.num_drafted_output = 0
        whole = Limits(max_running, prefill_budget)
        self._adapter = PolicyAdapter(policy, pages, self.live, self.deferrable, self.tenants, whole, clock)
        self._planner = StepPlanner(
            pages,
            self.live,
            self.deferrable,
            self._adapter,
            AdapterGate(slots, self._table, self.live, self.deferrable, clock),
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
        self._watch = StepWatch(clock)
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
        """Number of running sequences, which have a page table row and pages."""
        return self.live.num_running + self.deferrable.num_running

    @property
    def num_waiting(self) -> int:
        """Number of waiting sequences."""
        return self.live.num_waiting + self.deferrable.num_waiting

    @property
    def num_retractions(self) -> int:
        """Number of retractions of both classes since start."""
        return self._planner.num_retractions

    @property
    def policy(self) -> SchedulePolicy:
        """Policy that orders the waiting sequences. It may be replaced between two steps."""
        return self._adapter.policy

    @policy.setter
    def policy(self, policy: SchedulePolicy) -> None:
        self._adapter.policy = policy

    def add(
        self,
        request: Request,
        constraint: Constraint | None = None,
        processors: AskedProcessors = NO_PROCESSORS,
        adapter: int = 0,
    ) -> None:
        """Add a request to the waiting ones. The caller must ensure that the request fits into the pool.

        Args:
            adapter: number of the request's adapter, from 1; 0: no adapter.
        """
        seq = SequenceState(request, self._num_arrived, constraint, self._table, processors)
        self._num_arrived += 1
        self._sequences[request.id] = seq
        seq.tenant = self.tenants.join(
            request.tenant, deferrable=request.deferrable, is_key=request.tenant_is_key
        )
        self._table.is_deferrable[seq.index] = request.deferrable
        self._table.adapter[seq.index] = adapter
        now = self._table.came_at[seq.index] = self._clock()
        if request.timeout_s is not None:
            self._table.deadline[seq.index] = now + request.timeout_s
        self._pages.subscribe(seq)
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
        """Plan a step. The plan is empty if nothing can run before the launched step is committed.

        Args:
            alone: limits on deferrable sequences while no live sequence waits or runs; None: they may fill
                the step.
            piece: maximum number of tokens that all split prompts (`SequenceState.is_cut`) together compute
                in this step while other sequences decode; None: no limit.
            score_cost: cost, in tokens, of a prompt token whose log probability is requested.
        """
        assert self._speculation is None or not self._num_launched, "drafts need tokens that are known"
        self._pages.take_moved()
        plan = self._planner.plan(alone, piece, score_cost=score_cost, may_be_empty=self._num_launched > 0)
        self._num_launched += bool(plan.sequences)
        self._note_first(plan)
        if plan.sequences:
            self._watch.note(plan)
        if self._trace is not None and plan.sequences:
            self._trace.planned(plan)
        return plan

    def commit(self, plan: BatchPlan, output: StepOutput) -> list[TokenEvent]:
        """Apply the output of a launched plan to its sequences.

        Returns:
            One event for each sequence that sampled a token and has not ended since the launch.
        """
        self._num_launched -= 1
        broken = self._broken(plan, output) if output.not_finite or output.failures else {}
        if self._pages.states is not None:
            self._keep_states(plan, broken)
        for p in plan.prefills:
            if p.seq.status is Status.FINISHED or p.seq.id in broken:
                continue
            if p.seq.status is Status.RUNNING:
                if p.samples or p.end - self._pages.num_shared_tokens(p.seq) >= PUBLISHED_AT_ONCE:
                    self._pages.publish(p.seq, p.end)
                if p.samples:
                    self._pages.unsubscribe(p.seq)
            if p.seq.prompt_logprobs is not None and (records := output.prompt_logprobs.get(p.row)):
                p.seq.prompt_logprobs.take(p.start, records)
        kept = kept_tokens(plan, output.token_ids) if plan.drafts else []
        if self._speculation is not None and kept:
            self._speculation.learn(plan, kept)
        events, ends = take_sampled(
            plan, output, self._table, self.tenants, self.gaps, self._clock(), kept, broken
        )
        if kept:
            self._count_drafted(plan, events)
        for seq, reason in ends:
            self._finish(seq, reason, is_cached=seq.id not in broken)
        return events

    def withdraw(self, plan: BatchPlan) -> None:
        """Undo a plan whose launch failed: the plan's tokens count as not computed.

        Call `give_up` afterwards. Plans that were launched earlier may be committed before this call, or
        between the two calls.
        """
        self._num_launched -= 1
        table, indices = self._table, plan.indices
        table.num_computed[indices] -= plan.counts
        table.num_in_flight[indices] -= plan.samples
        table.length[indices] -= plan.samples
        self._pages.withdraw(plan)

    def give_up(self, plan: BatchPlan) -> list[str]:
        """End the requests of a withdrawn plan with an error; return their ids."""
        left = [seq for seq in plan.sequences if seq.status is not Status.FINISHED]
        for seq in left:
            self._finish(seq, FinishReason.ERROR)
        return [seq.id for seq in left]

    def _keep_states(self, plan: BatchPlan, broken: Mapping[str, Exception]) -> None:
        """Publish the state snapshots that a step has taken, together with the pages before them."""
        assert self._pages.states is not None
        for seq, position, _ in taken_in(plan):
            if seq.status is Status.RUNNING and seq.id not in broken:
                self._pages.publish(seq, position)
        self._pages.states.commit(plan, broken)

    def order(self, lane: Lane, most: int | None = None) -> list[SequenceState]:
        """Return up to `most` waiting sequences of a lane, in the order of admission; None: all."""
        self._pages.take_moved()
        return self._table.sequences(lane.queue.indices[self._adapter.order(lane).places[:most]])

    def view_steps(self, after: int) -> StepsView:
        """Return the steps after number `after` and all sequences; keep recording steps for the next call."""
        running = [*self.live.running, *self.deferrable.running]
        waiting = [
            (seq, lane.why_waiting if num_ahead == 0 else "others come first")
            for lane in (self.live, self.deferrable)
            if lane.num_waiting
            for num_ahead, seq in enumerate(self.order(lane, MAX_WAITING))
        ]
        return self._watch.view(after, running, waiting, self.num_waiting)

    def _broken(self, plan: BatchPlan, output: StepOutput) -> dict[str, Exception]:
        """Return the errors of the requests that cannot continue; log errors that the model has caused."""
        broken = errors_in(plan, output)
        if not output.not_finite:
            return broken
        by_model = sorted(name for name, error in broken.items() if error is NOT_FINITE)
        logger.error(
            "The model computed NaN or infinity for %d of %d requests in a step (%s); they end with an error. "
            "Possible causes: float16, which overflows where bfloat16 does not; a faulty attention backend or "
            "module pass; damaged weights.",
            *(len(by_model), len(plan.sequences), ", ".join(by_model[:MAX_NAMED])),
        )
        return broken

    def _finish(self, seq: SequenceState, reason: FinishReason, *, is_cached: bool = True) -> None:
        if seq.status is Status.RUNNING:
            self._pages.release(seq, is_cached=is_cached)
        self._pages.unsubscribe(seq)
        if self._speculation is not None:
            self._speculation.forget(seq)
        self._lane(seq).end(seq)
        self.tenants.leave(seq.tenant)
        seq.finish_reason = reason
        if self._trace is not None:
            self._trace.ended(seq, reason.value)
        del self._sequences[seq.id]
        self._table.remove(seq.index)

    def _count_drafted(self, plan: BatchPlan, events: Sequence[TokenEvent]) -> None:
        """Count the drafted tokens in the events of a plan. The first token of an event is sampled."""
        drafted = {plan.sequences[place].id for place in plan.drafts}
        self.num_drafted_output += sum(
            len(event.token_ids) - 1 for event in events if event.token_ids and event.id in drafted
        )

    def _lane(self, seq: SequenceState) -> Lane:
        return self.deferrable if seq.request.deferrable else self.live

    def _note_first(self, plan: BatchPlan) -> None:
        """Record the cached tokens and the wait of sequences in their first step.

        Also charges tenants for prompt tokens.
        """
        prefills = plan.prefills
        if not prefills:
            return
        for p in prefills:
            if p.seq.num_cached_first is None:
                p.seq.num_cached_first = p.start
                self.num_prompt_tokens += p.seq.num_tokens  # with `Request.output`
                self.num_prompt_cached += p.start
                p.seq.queued_us = int((self._clock() - self._table.came_at[p.seq.index]) * 1e6)
        tenants = self._table.tenant[plan.indices[plan.is_prefill]]
        self.tenants.charge(tenants, plan.counts[plan.is_prefill] * np.float64(PROMPT_WEIGHT))
