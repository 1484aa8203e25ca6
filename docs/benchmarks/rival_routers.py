"""The rules of two other routers, to be compared with llmfw's in the same simulation.

Both guess what an engine has cached: all that was ever sent to it. So they get a `GuessingDispatcher`, whose index of
prefixes is fed by the router's own choices, and forgets nothing. Ray's tree forgets nothing by default; SGLang's
tree holds tens of millions of characters for each engine, more than is sent in these traces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from llmfw.core import ReplicaView, RoutedRequest, Router
from llmfw.core.client.prefix_index import PrefixIndex
from llmfw.core.client.prompt_prefixes import PromptPrefixes
from llmfw.core.client.replicas.dispatcher import Dispatcher
from llmfw.core.client.replicas.isolated_router import IsolatedRouter
from llmfw.core.client.replicas.replica_load import Place
from llmfw.core.client.replicas.routed_engine import RoutedEngine

EngineT = TypeVar("EngineT", bound=RoutedEngine)


class GuessingDispatcher(Dispatcher):
    """Takes all that was ever sent to an engine for cached there."""

    def __init__(self, router: IsolatedRouter, prefixes: PrefixIndex) -> None:
        self._guessed = PrefixIndex()
        super().__init__(router, self._guessed)

    def enter(
        self,
        request: RoutedRequest,
        prompt: PromptPrefixes,
        block: int,
        engines: Sequence[EngineT],
        fixed: EngineT | None = None,
    ) -> tuple[EngineT, Place]:
        engine, place = super().enter(request, prompt, block, engines, fixed)
        self._guessed.add(prompt.up_to(prompt.num_blocks), engine.index)
        return engine, place


class CacheAware(Router):
    """SGLang's rule `cache_aware`, with the defaults of its command line.

    While the loads are balanced, the longest match wins if it is more than a share of the prompt; else, and while
    they are not, the engine with the fewest requests. (A miss used to go to the smallest tree, whatever its load.)
    """

    needs_matches = True

    class Options(Router.Options, frozen=True):
        """The options of its command line."""

        cache_threshold: float = 0.3
        balance_abs_threshold: int = 64
        balance_rel_threshold: float = 1.5

    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> ReplicaView:
        options = self.options
        assert isinstance(options, CacheAware.Options)
        loads = [num_requests(each) for each in replicas]
        is_balanced = max(loads) - min(loads) <= options.balance_abs_threshold or max(
            loads
        ) <= options.balance_rel_threshold * min(loads)
        best = max(replicas, key=lambda each: each.match_tokens)
        if is_balanced and best.match_tokens > options.cache_threshold * request.num_tokens:
            return best
        return min(replicas, key=num_requests)


class RayPrefix(Router):
    """The prefix-aware rule of Ray Serve LLM, with its defaults: it never looks at the load.

    The engines with the longest match, if that is at least a tenth of the prompt; else those to which the least
    was sent. Among several, the one with the fewest requests.
    """

    needs_matches = True

    class Options(Router.Options, frozen=True):
        """The option that has an effect by default."""

        match_rate_threshold: float = 0.1

    def __init__(self, options: Router.Options) -> None:
        super().__init__(options)
        self._sent: Counter[int] = Counter()  # engine → tokens of its tree

    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> ReplicaView:
        options = self.options
        assert isinstance(options, RayPrefix.Options)
        longest = max(each.match_tokens for each in replicas)
        if longest >= options.match_rate_threshold * request.num_tokens:
            among = [each for each in replicas if each.match_tokens == longest]
        else:
            least = min(self._sent[each.index] for each in replicas)
            among = [each for each in replicas if self._sent[each.index] == least]
        chosen = min(among, key=num_requests)
        self._sent[chosen.index] += request.num_tokens - chosen.match_tokens
        return chosen


def num_requests(replica: ReplicaView) -> int:
    """Return the number of requests that the engine has."""
    return replica.num_waiting + replica.num_running
