"""Drives the scheduler with cache and pool, without a model, and looks at every request's output."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from llmfw.core.base.request import FinishReason, Request, SamplingParams, Thinking, TokenEvent
from llmfw.core.base.step import StepOutput
from llmfw.core.interfaces.policy import SchedulePolicy
from llmfw.core.schedule.cache.isolated_rule import IsolatedRule
from llmfw.core.schedule.cache.kv_pool import KVPool
from llmfw.core.schedule.cache.prefix_cache import NoPrefixCache, PrefixCache
from llmfw.core.schedule.cache.radix_cache import RadixCache
from llmfw.core.schedule.cache.snapshot_cache import SnapshotCache
from llmfw.core.schedule.cache.snapshot_slots import SnapshotSlots
from llmfw.core.schedule.constraint import constraint_of
from llmfw.core.schedule.new_token_ratio import NewTokenRatio
from llmfw.core.schedule.plan import BatchPlan
from llmfw.core.schedule.scheduler import Scheduler
from llmfw.core.schedule.sequence_pages import SequencePages
from llmfw.core.schedule.slot_assignment import SlotAssignment
from llmfw.core.schedule.speculation import Speculation
from llmfw.core.schedule.trace import DecisionTrace
from llmfw.plugins.policies.fcfs import FCFS

from .hashed_model import HashedModel

STOP = 0
VOCAB_SIZE = 23


class Driver:
    """A scheduler and a hashed model, with a look at every request's output. `depth` plans run ahead."""

    def __init__(
        self,
        *,
        policy: type[SchedulePolicy] = FCFS,
        page_size: int = 1,
        num_tokens: int = 256,
        budget: int = 32,
        max_running: int = 8,
        overlap: bool = False,
        cached: bool = True,
        num_snapshots: int | None = None,
        chunked: bool = True,
        conservativeness: float = 1.0,
        share: float = 0.0,
        trace: DecisionTrace | None = None,
        rule: IsolatedRule | None = None,
        speculation: Speculation | None = None,
        slots: SlotAssignment | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        pool = KVPool(num_tokens // page_size, page_size)
        cache: PrefixCache = RadixCache(pool, rule) if cached else NoPrefixCache()
        if num_snapshots is not None:  # the model keeps states
            cache = SnapshotCache(pool, SnapshotSlots(max_running, num_snapshots), rule)
        self.max_len = pool.num_pages * page_size
        self.pages = SequencePages(pool, cache, max_running, self.max_len)
        self.scheduler = Scheduler(
            self.pages,
            policy(policy.Options()),
            NewTokenRatio(conservativeness),
            max_running=max_running,
            prefill_budget=budget,
            chunked=chunked,
            share=share,
            trace=trace,
            speculation=speculation,
            slots=slots,
            clock=clock,
        )
        self.model = HashedModel(self.pages, VOCAB_SIZE)
        self.chunked = chunked
        self.depth = int(overlap)
        self.launched: deque[tuple[BatchPlan, StepOutput]] = deque()
        self.output: dict[str, list[int]] = {}
        self.ended: dict[str, FinishReason] = {}
        self.cached: dict[str, int] = {}
        self.requests: dict[str, Request] = {}

    def add(
        self,
        request_id: str,
        prompt: list[int],
        max_tokens: int,
        *,
        stops: bool = False,
        thinking: Thinking | None = None,
        number: int = 0,
        **fields: Any,
    ) -> None:
        """Add a request; `number` is that of its adapter, and `fields` are those of `Request`."""
        sampling = SamplingParams(max_tokens=max_tokens)
        eos = (STOP,) if stops else ()
        request = Request(
            id=request_id,
            prompt=prompt,
            sampling=sampling,
            eos_token_ids=eos,
            thinking=thinking,
            **fields,
        )
        self.requests[request_id] = request
        self.output[request_id] = []
        self.scheduler.add(request, constraint_of(request, None), adapter=number)

    def abort(self, request_id: str) -> None:
        self.scheduler.abort(request_id)
        self.ended.setdefault(request_id, FinishReason.ABORT)

    def plan(self) -> BatchPlan:
        return self.scheduler.schedule()

    def step(self) -> BatchPlan:
        plan = self.plan()
        if plan.parts:
            self.launched.append((plan, StepOutput(self.model.run(plan))))
        if self.launched and (len(self.launched) > self.depth or not plan.parts):
            for event in self.scheduler.commit(*self.launched.popleft()):
                self._take(event)
        return plan

    def finish(self) -> None:
        for _ in range(100_000):
            if not (self.scheduler.has_work or self.launched):
                break
            self.step()
        assert not self.scheduler.has_work, "some request never ends"
        self.pages.check_nothing_leaked()

    def check_outputs(self) -> None:
        for request_id, request in self.requests.items():
            assert request.sampling.max_tokens is not None
            whole = self.model.expected(
                request.prompt, request.sampling.max_tokens, request.eos_token_ids, forced_tokens(request)
            )
            if self.ended[request_id] is FinishReason.ABORT:
                assert self.output[request_id] == whole[: len(self.output[request_id])]
            else:
                assert self.output[request_id] == whole

    def _take(self, event: TokenEvent) -> None:
        assert event.id not in self.ended, "an event after the end"
        self.output[event.id] += event.token_ids
        self.cached.setdefault(event.id, event.cached_tokens)
        if event.finish_reason:
            self.ended[event.id] = event.finish_reason


def forced_tokens(request: Request) -> dict[int, int]:
    """Return the tokens that a spent budget forces, by their place in the output."""
    if request.thinking is None:
        return {}
    assert request.thinking.budget is not None
    return dict(enumerate(request.thinking.end, request.thinking.budget))


def drive_at_random(driver: Driver, rng: random.Random, count: int, deferrable: float = 0.0) -> int:
    """Do so many random things; of the requests, this part is deferrable."""
    shared = [[rng.randrange(1, VOCAB_SIZE) for _ in range(20)] for _ in range(3)]
    for i in range(count):
        draw = rng.random()
        if draw < 0.25 and driver.scheduler.num_waiting < 20:
            prompt = rng.choice(shared)[: rng.randrange(21)] + [rng.randrange(VOCAB_SIZE) for _ in range(8)]
            prompt = prompt[: rng.randrange(1, driver.max_len)]
            most = min(60, driver.max_len - len(prompt))
            driver.add(
                f"{i}",
                prompt,
                rng.randrange(1, most + 1),
                stops=rng.random() < 0.5,
                thinking=draw_thinking(rng) if not driver.depth and rng.random() < 0.5 else None,
                deferrable=rng.random() < deferrable,
            )
        elif draw < 0.27 and driver.requests:
            driver.abort(rng.choice(list(driver.requests)))
        else:
            driver.step()
    return count


def draw_thinking(rng: random.Random) -> Thinking:
    """Return thinking whose end comes after a while and is jumped over: no model says it by itself."""
    end = range(VOCAB_SIZE, VOCAB_SIZE + rng.randrange(1, 20))
    return Thinking(end=tuple(end), is_open=True, budget=rng.randrange(10))
