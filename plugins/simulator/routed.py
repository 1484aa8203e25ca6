"""Routes a replay's requests as a server does: the same routers, which see what engines report after each step."""

from __future__ import annotations

from llmfw.core.base.step_sizes import StepSizes
from llmfw.core.client.cache_mirror import CacheMirror
from llmfw.core.client.prefix_index import PrefixIndex
from llmfw.core.client.prompt_prefixes import PromptPrefixes
from llmfw.core.client.replicas.replica_load import Place
from llmfw.core.client.replicas.routed_engine import RoutedEngine
from llmfw.core.engine.process.reporter import EngineReporter
from llmfw.core.interfaces.router import RoutedRequest
from llmfw.core.schedule.cache.radix_cache import RadixCache
from llmfw.core.schedule.plan import BatchPlan

from .tokens import TokenIds
from .trace import TraceRequest


class RoutedReplica:
    """What the router sees of one replica, and the reports that the replica makes.

    Args:
        index: index of the replica.
        cache: its prefix cache, still empty.
        prefixes: prefixes that all replicas have cached.

    Attributes:
        engine: the replica, as `Dispatcher` knows it.
    """

    def __init__(self, index: int, cache: RadixCache, prefixes: PrefixIndex) -> None:
        self.engine = RoutedEngine(index, CacheMirror(_no_gap))
        self.engine.mirror.publish(prefixes, index)
        self._reporter = EngineReporter(cache.start_journal())
        self._places: dict[str, Place] = {}  # request id → place

    def enter(self, request_id: str, place: Place) -> None:
        """Remember a request that was sent to the replica."""
        self._places[request_id] = place

    def note_step(self, plan: BatchPlan, seconds: float) -> None:
        """Report the changes of the cache and of the speed after a step."""
        num_prefilling = int(plan.is_prefill.sum())
        self._reporter.meter.note(StepSizes(plan.num_tokens, len(plan.sequences), num_prefilling), seconds)
        if (report := self._reporter.take()) is not None:
            self.engine.mirror.take(report)

    def answered(self, request_id: str) -> None:
        """Record that a request has its first token."""
        self.engine.load.answered(self._places[request_id])

    def leave(self, request_id: str) -> None:
        """Record the end of a request."""
        self.engine.load.leave(self._places.pop(request_id))


def routed_request(request: TraceRequest) -> RoutedRequest:
    """Return a request as routers see it."""
    return RoutedRequest(request.prompt_len, request.tenant, request.salt, request.deferrable)


def prefixes_of(request: TraceRequest, prompt: TokenIds, block: int) -> PromptPrefixes:
    """Return the prefixes of a request's prompt that consist of whole blocks."""
    return PromptPrefixes(prompt, request.salt, block)


def _no_gap() -> None:
    raise AssertionError("a report is missing, though reports are delivered at once")
