"""One engine of a replay: the real scheduler, cache and pool, with a profile's step times instead of a model.

When a step ends, its tokens are committed. Then, as in `core.engine.generation.engine`:

    plain        the next step is planned and starts
    overlapped   the next step, which is already planned, starts; the step after it is planned
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np

from llmfw.core import Request, SamplingParams, SchedulePolicy
from llmfw.core.base.step import StepOutput
from llmfw.core.client.prefix_index import PrefixIndex
from llmfw.core.engine.generation.piece_budget import PieceBudget
from llmfw.core.schedule.cache.isolated_rule import IsolatedRule
from llmfw.core.schedule.cache.kv_pool import KVPool
from llmfw.core.schedule.cache.radix_cache import RadixCache
from llmfw.core.schedule.new_token_ratio import NewTokenRatio
from llmfw.core.schedule.plan import BatchPlan
from llmfw.core.schedule.scheduler import Scheduler
from llmfw.core.schedule.sequence import SequenceState, Status
from llmfw.core.schedule.sequence_pages import SequencePages

from .ledger import Ledger
from .profile import Profile
from .routed import RoutedReplica
from .tokens import END, TokenIds, output_of
from .trace import TraceRequest

IDLE = math.inf


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Settings of an engine in a replay.

    Attributes:
        kv_tokens: capacity of the KV pool in tokens, used in whole pages.
        page_size: tokens in a page.
        max_running: maximum number of sequences in one step.
        chunk: maximum number of prompt tokens in one step.
        stretch: bound on pieces of long prompts while sequences decode; see
            `core.engine.generation.piece_budget`.
        make_rule: function that creates the eviction rule of a replica.
    """

    kv_tokens: int
    page_size: int
    max_running: int
    chunk: int
    stretch: float = 0.0
    make_rule: Callable[[], IsolatedRule] = IsolatedRule

    @property
    def num_pages(self) -> int:
        """Number of pages in the pool."""
        return self.kv_tokens // self.page_size

    def holds(self, request: TraceRequest) -> bool:
        """Return whether a request fits in the pool at its full length."""
        return request.prompt_len + request.max_tokens <= self.num_pages * self.page_size


class Replica:
    """One simulated engine. `replay` calls `add` for each request, and `advance` to start and end steps.

    Args:
        index: index of the replica.
        settings: settings of the engine.
        policy: new policy, which no other replica uses.
        profile: cost model of the steps.
        ledger: receives the events of requests.
        max_len: length in tokens of the longest request in the trace.
        prefixes: prefixes that all replicas have cached, for the router; None: there is one replica.

    Attributes:
        ends_at: time at which the running step ends; infinity: no step is running.
        routed: what the router sees of the replica; None: there is one replica.
    """

    def __init__(
        self,
        index: int,
        settings: EngineSettings,
        policy: SchedulePolicy,
        profile: Profile,
        ledger: Ledger,
        max_len: int,
        prefixes: PrefixIndex | None = None,
    ) -> None:
        pool = KVPool(settings.num_pages, settings.page_size)
        self._cache = RadixCache(pool, settings.make_rule())
        self.pages = SequencePages(pool, self._cache, settings.max_running, max_len)
        self.index = index
        self.ends_at = IDLE
        self.routed = None if prefixes is None else RoutedReplica(index, self._cache, prefixes)
        self._pieces = PieceBudget(settings.chunk, stretch=settings.stretch)
        self._profile = profile
        self._ledger = ledger
        self._now = 0.0
        self._seconds = 0.0  # duration of the running step
        self._running: BatchPlan | None = None
        self._next: BatchPlan | None = None
        self._outputs: dict[str, list[int]] = {}  # request id → output tokens from the trace
        self._numbers = np.zeros(1024, dtype=np.int64)  # index in the scheduler's table → request number
        self.scheduler = Scheduler(
            self.pages,
            policy,
            NewTokenRatio(),
            max_running=settings.max_running,
            prefill_budget=settings.chunk,
            clock=lambda: self._now,
        )

    def add(self, request: TraceRequest, prompt: TokenIds, now: float) -> None:
        """Queue a request.

        If no step runs, call `advance` after adding all requests that arrive at this time.
        """
        self._set_time(now)
        request_id = str(request.number)
        self._outputs[request_id] = output_of(request)
        self._ledger.replica[request.number] = self.index
        self.scheduler.add(
            Request(
                id=request_id,
                prompt=cast("list[int]", prompt),  # avoids a list of tens of thousands of ints
                sampling=SamplingParams(max_tokens=request.max_tokens),
                eos_token_ids=(END,),
                priority=request.priority,
                tenant=request.tenant,
                cache_salt=request.salt,
                deferrable=request.deferrable,
            )
        )

    def _set_time(self, now: float) -> None:
        """Let time pass for the scheduler and the cache."""
        self._now = self._cache.now = now
        self._cache.expire()

    def advance(self, now: float) -> None:
        """End the running step, if any, and start the next one if there is work."""
        self._set_time(now)
        if self._running is not None:
            self._commit(self._running)
            self._pieces.learn(self._running, self._seconds)
        self._running, self._next = self._next or self._plan(), None
        if self._running is None:
            assert not self.scheduler.has_work, "nothing runs, and nothing can"
            self.ends_at = IDLE
            return
        self._seconds = self._profile.step_seconds(self._running.starts, self._running.counts)
        self.ends_at = now + self._seconds
        if self._profile.overlap:
            self._next = self._plan()

    def _plan(self) -> BatchPlan | None:
        plan = self.scheduler.schedule(piece=self._pieces.largest(self.scheduler.live.num_waiting_unscored))
        if not plan.sequences:
            return None
        for place in np.flatnonzero(plan.is_new).tolist():
            number, index = int(plan.sequences[place].id), int(plan.indices[place])
            self._set_number(index, number)
            overtaken = int(self.pages.numbers.overtaken[index])
            self._ledger.begin(number, self._now, int(plan.starts[place]), overtaken)
        return plan

    def _set_number(self, index: int, number: int) -> None:
        if index >= len(self._numbers):
            self._numbers = np.resize(self._numbers, 2 * index)
        self._numbers[index] = number

    def _commit(self, plan: BatchPlan) -> None:
        """Commit a step, with the output tokens of the trace, to the scheduler."""
        sampling, indices = plan.sampling, plan.indices[plan.samples]
        if self._profile.overlap:  # some requests may have ended after this step was launched
            indices = indices[[seq.status is not Status.FINISHED for seq in sampling]]
        first = [seq.id for seq in sampling if not seq.output] if self.routed is not None else ()
        self._ledger.sampled(self._numbers[indices], self._now)
        events = self.scheduler.commit(plan, StepOutput([self._next_token(seq) for seq in sampling]))
        if self.routed is not None:
            self.routed.note_step(plan, self._seconds)
            for request_id in first:
                self.routed.answered(request_id)
        for event in events:
            if event.finish_reason is not None:
                del self._outputs[event.id]
                if self.routed is not None:
                    self.routed.leave(event.id)

    def _next_token(self, seq: SequenceState) -> int:
        output = self._outputs.get(seq.id)
        return END if output is None else output[len(seq.output)]
