"""One engine of a replay: the real scheduler, cache and pool, with a profile's step times in place of a model.

    plain        the step ends: its tokens are committed; the next one is planned and begins
    overlapped   the step ends: its tokens are committed; the next one, planned before, begins; one more is planned

as in `core.engine.engine`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np

from llmfw.core.policy import SchedulePolicy
from llmfw.core.request import Request, SamplingParams
from llmfw.core.scheduling.admission import NewTokenRatio
from llmfw.core.scheduling.kv_pool import KVPool
from llmfw.core.scheduling.plan import BatchPlan, StepResult
from llmfw.core.scheduling.radix_cache import RadixCache
from llmfw.core.scheduling.scheduler import Scheduler
from llmfw.core.scheduling.sequence import SequenceState, Status
from llmfw.core.scheduling.sequence_pages import SequencePages
from llmfw.core.scheduling.trace import QuietTrace

from .columns import columns
from .ledger import Ledger
from .profile import Profile
from .tokens import END, TokenIds
from .trace import TraceRequest

IDLE = math.inf


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What an engine of a replay has.

    Attributes:
        kv_tokens: that the pool holds, in whole pages.
        page_size: tokens in a page.
        max_running: most sequences in one step.
        chunk: most prompt tokens in one step.
    """

    kv_tokens: int
    page_size: int
    max_running: int
    chunk: int

    @property
    def num_pages(self) -> int:
        """Pages of the pool."""
        return self.kv_tokens // self.page_size

    def holds(self, request: TraceRequest) -> bool:
        """Return whether the pool holds a request at its longest."""
        return request.prompt_len + request.max_tokens <= self.num_pages * self.page_size


class Replica(QuietTrace):
    """One engine. Its scheduler tells it what is decided.

    Args:
        index: among the replicas.
        settings: of the engine.
        policy: a fresh one.
        profile: says what steps take.
        ledger: is told what happens.
        max_len: tokens of the longest request that will come.

    Attributes:
        ends_at: when the running step ends; infinity: none runs.
        num_tokens: of the requests that wait and run: prompts, and outputs so far.
    """

    def __init__(
        self,
        index: int,
        settings: EngineSettings,
        policy: SchedulePolicy,
        profile: Profile,
        ledger: Ledger,
        max_len: int,
    ) -> None:
        pool = KVPool(settings.num_pages, settings.page_size)
        self._cache = RadixCache(pool)
        self.pages = SequencePages(pool, self._cache, settings.max_running, max_len)
        self.index = index
        self.ends_at = IDLE
        self.num_tokens = 0
        self._profile = profile
        self._ledger = ledger
        self._now = 0.0
        self._running: BatchPlan | None = None
        self._next: BatchPlan | None = None
        self._numbers: list[int] = []  # of requests, by their order of arrival here
        self._tokens: list[TokenIds | None] = []  # the same
        self.scheduler = Scheduler(
            self.pages,
            policy,
            NewTokenRatio(),
            max_running=settings.max_running,
            prefill_budget=settings.chunk,
            clock=lambda: self._now,
            trace=self,
        )

    def num_cached(self, tokens: TokenIds, salt: str) -> int:
        """Return how many leading tokens are in the cache."""
        return self._cache.match_length(tokens, salt)

    def add(self, request: TraceRequest, tokens: TokenIds, now: float) -> None:
        """Let a request wait. If no step runs, `advance` is to be called when all that come now have come."""
        self._now = now
        self._numbers.append(request.number)
        self._tokens.append(tokens)
        self._ledger.replica[request.number] = self.index
        self.num_tokens += request.prompt_len
        self.scheduler.add(
            Request(
                id=str(request.number),
                prompt=cast("list[int]", tokens[: request.prompt_len]),  # saves a list of ten thousands
                sampling=SamplingParams(max_tokens=request.max_tokens),
                eos_token_ids=(END,),
                priority=request.priority,
                tenant=request.tenant,
                cache_salt=request.salt,
                deferrable=request.deferrable,
            )
        )

    def advance(self, now: float) -> None:
        """End the running step, if one does, and begin the next one, if there is anything to do."""
        self._now = now
        if self._running is not None:
            self._commit(self._running)
        self._running, self._next = self._next or self._plan(), None
        if self._running is None:
            assert not self.scheduler.has_work, "nothing runs, and nothing can"
            self.ends_at = IDLE
            return
        self.ends_at = now + self._profile.step_seconds(self._running.starts, self._running.counts)
        if self._profile.overlap:
            self._next = self._plan()

    def _plan(self) -> BatchPlan | None:
        plan = columns(self.scheduler.schedule())
        return plan if len(plan.sequences) else None

    def _commit(self, plan: BatchPlan) -> None:
        """Hand the scheduler the tokens that the trace has for a step."""
        sampling = [plan.sequences[place] for place in np.flatnonzero(plan.samples)]
        going_on = [seq for seq in sampling if seq.status is not Status.FINISHED]
        numbers = np.array([self._numbers[seq.arrival] for seq in going_on], dtype=np.int64)
        self._ledger.sampled(numbers, self._now)
        self.num_tokens += len(going_on)
        self.scheduler.commit(
            getattr(plan, "raw", plan), StepResult([self._next_token(seq) for seq in sampling])
        )

    def _next_token(self, seq: SequenceState) -> int:
        tokens = self._tokens[seq.arrival]
        return END if tokens is None else int(tokens[seq.num_tokens])

    def admitted(self, seq: SequenceState) -> None:
        """A request runs."""
        self._ledger.admit(self._numbers[seq.arrival], self._now, seq.num_computed)

    def retracted(self, seq: SequenceState, reason: str) -> None:
        """A request waits again."""
        self._ledger.num_retractions += 1

    def ended(self, seq: SequenceState, reason: str) -> None:
        """A request ended."""
        self.num_tokens -= seq.num_tokens
        self._tokens[seq.arrival] = None
