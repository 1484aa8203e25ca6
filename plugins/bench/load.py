"""The loads of one call: the requests to send, and when to send them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from .client import CompletionClient
from .open_loop import at_rate, run_planned
from .prompts import PromptSource
from .runner import Run, run_workload
from .trace_load import TraceFile
from .workloads import Workload


class Load(Protocol):
    """Requests to send to a server in each run."""

    @property
    def name(self) -> str:
        """Name in tables and results."""

    @property
    def rate(self) -> float | None:
        """Requests sent per second; None: each request starts when another request has ended."""

    @property
    def has_conversations(self) -> bool:
        """Whether prompts include the model's replies, which are text."""

    async def warm_up(self, client: CompletionClient, prompts: PromptSource, seed: str) -> None:
        """Send a few requests."""

    async def run(self, client: CompletionClient, prompts: PromptSource, seed: str) -> Run:
        """Send all requests, and return their replies."""


@dataclass(frozen=True)
class _WorkloadLoad:
    """What the loads of a workload have in common."""

    workload: Workload

    @property
    def name(self) -> str:
        return self.workload.name

    @property
    def has_conversations(self) -> bool:
        return self.workload.turns > 1

    async def warm_up(self, client: CompletionClient, prompts: PromptSource, seed: str) -> None:
        await run_workload(client, self.workload.warmup(), prompts, seed)


@dataclass(frozen=True)
class ClosedLoad(_WorkloadLoad):
    """A workload with a fixed number of requests at a time."""

    rate: None = None

    async def run(self, client: CompletionClient, prompts: PromptSource, seed: str) -> Run:
        return await run_workload(client, self.workload, prompts, seed)


@dataclass(frozen=True)
class RateLoad(_WorkloadLoad):
    """A workload's requests at random times, on average `rate` per second, for `seconds` seconds."""

    rate: float
    seconds: float

    async def run(self, client: CompletionClient, prompts: PromptSource, seed: str) -> Run:
        planned = at_rate(self.workload, prompts, seed, self.rate, self.seconds)
        return await run_planned(client, planned, seed)


@dataclass(frozen=True)
class TraceLoad:
    """A trace's requests at their times, or stretched to a rate, for `seconds` or until the trace ends."""

    trace: TraceFile
    rate: float | None
    seconds: float | None

    has_conversations = False

    @property
    def name(self) -> str:
        return self.trace.name

    async def warm_up(self, client: CompletionClient, prompts: PromptSource, seed: str) -> None:
        warm_up = Workload("warm-up", requests=2, concurrency=2, prompt=64, output=8)
        await run_workload(client, warm_up, prompts, seed)

    async def run(self, client: CompletionClient, prompts: PromptSource, seed: str) -> Run:
        planned = self.trace.planned(prompts, seed, self.rate, self.seconds)
        return await run_planned(client, planned, seed)
