"""Runs the scheduler with a policy and random requests, without a model: every sampled token is 1."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from llmfw.core.base.request import FinishReason, Request, SamplingParams
from llmfw.core.base.step import StepOutput
from llmfw.core.interfaces.policy import SchedulePolicy
from llmfw.core.schedule.cache.kv_pool import KVPool
from llmfw.core.schedule.cache.radix_cache import RadixCache
from llmfw.core.schedule.constraint import constraint_of
from llmfw.core.schedule.new_token_ratio import NewTokenRatio
from llmfw.core.schedule.scheduler import Scheduler
from llmfw.core.schedule.sequence_pages import SequencePages

MAX_STEPS = 20_000


class PolicyLoad:
    """A load test of a policy: a scheduler with a small pool, and requests of several tenants and priorities.

    Some requests share prefixes.

    Args:
        policy: policy under test.
        seed: seed of all random choices.
        fields: names of request fields that half of the requests set.

    Attributes:
        asked: `max_tokens` of each request, by id.
        given: number of tokens that each request received.
        ends: number of times that each request ended.
    """

    def __init__(self, policy: SchedulePolicy, seed: int, fields: Sequence[str] = ()) -> None:
        self._fields = fields
        self.asked: dict[str, int] = {}
        self.given: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        self._rng = random.Random(seed)
        pool = KVPool(160, 1)
        self._pages = SequencePages(pool, RadixCache(pool), 6, 100)
        self._scheduler = Scheduler(
            self._pages, policy, NewTokenRatio(0.05), max_running=6, prefill_budget=24
        )

    @property
    def num_retractions(self) -> int:
        """Number of retractions so far."""
        return self._scheduler.num_retractions

    def run(self, num_requests: int) -> None:
        """Send `num_requests` requests, a few at a time, and run until all have ended.

        Raises:
            AssertionError: some requests do not end, or pages leak.
        """
        for _ in range(MAX_STEPS):
            while len(self.asked) < num_requests and self._rng.random() < 0.3:
                self._add()
            if len(self.asked) == num_requests and not self._scheduler.has_work:
                break
            self._step()
        assert not self._scheduler.has_work, f"after {MAX_STEPS} steps some requests have not ended"
        self._pages.check_nothing_leaked()

    def _add(self) -> None:
        rng, name = self._rng, f"request-{len(self.asked)}"
        prompt = [rng.randrange(4)] * rng.randrange(1, 30) + [rng.randrange(100) for _ in range(10)]
        self.asked[name] = rng.randrange(1, 60)
        request = Request(
            id=name,
            prompt=prompt,
            sampling=SamplingParams(max_tokens=self.asked[name]),
            priority=rng.randrange(-1, 2),
            tenant=str(rng.randrange(3)),
            fields={field: rng.randrange(1, 1000) for field in self._fields if rng.random() < 0.5},
        )
        self._scheduler.add(request, constraint_of(request, None))

    def _step(self) -> None:
        plan = self._scheduler.schedule()
        result = StepOutput([1] * sum(part.samples for part in plan.parts))
        for event in self._scheduler.commit(plan, result):
            self.given[event.id] += len(event.token_ids)
            self.ends[event.id] += event.finish_reason is FinishReason.LENGTH
