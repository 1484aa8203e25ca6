"""Shows the engines to a router, and counts the requests that go to each. The simulator uses it, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from llmfw.core.interfaces.router import ReplicaView, RoutedRequest

from ..prefix_index import PrefixIndex
from ..prompt_prefixes import PromptPrefixes
from .isolated_router import IsolatedRouter
from .replica_load import Place
from .routed_engine import RoutedEngine

EngineT = TypeVar("EngineT", bound=RoutedEngine)


class Dispatcher:
    """Chooses an engine for each request.

    Args:
        router: chooses the engine of a request.
        prefixes: prefixes that the engines have cached.
    """

    def __init__(self, router: IsolatedRouter, prefixes: PrefixIndex) -> None:
        self.router = router
        self._prefixes = prefixes
        self._turns = 0

    def enter(
        self,
        request: RoutedRequest,
        prompt: PromptPrefixes,
        block: int,
        engines: Sequence[EngineT],
        fixed: EngineT | None = None,
    ) -> tuple[EngineT, Place]:
        """Return the engine for a request, and the request's place on this engine.

        Args:
            prompt: prefixes of the prompt; none if the router does not need matches.
            block: number of tokens in a block.
            engines: engines that take requests now, at least one, by ascending number.
            fixed: engine that must be chosen; None: the router chooses.
        """
        num_tokens, deferrable = request.num_tokens, request.deferrable
        cached = self._prefixes.num_held(prompt)  # of all engines at once
        known, num_blocks = prompt.known, prompt.num_blocks

        def view_of(each: RoutedEngine) -> ReplicaView:
            count = cached.get(each.index, 0) if cached else 0
            if count < num_blocks and known[count] in each.load.awaited:
                count = each.load.num_matched(prompt, count)
            return each.view(min(count * block, num_tokens - 1) if count else 0, deferrable)

        if fixed is None:
            view = self.router.choose(request, [view_of(each) for each in engines])
            chosen = next(each for each in engines if each.index == view.index)
        else:
            view, chosen = view_of(fixed), fixed
        self._turns += 1
        chosen.load.last_chosen = self._turns
        place = Place(
            num_tokens - view.match_tokens,
            prompt,
            cached.get(chosen.index, 0),
            deferrable=deferrable,
            estimated_s=_estimated_s(view, num_tokens),
        )
        chosen.load.enter(place)
        return chosen, place


def _estimated_s(view: ReplicaView, num_tokens: int) -> float | None:
    """Return the seconds until an engine has computed a prompt; None: its speed has not been measured."""
    if not view.tokens_per_s:
        return None
    return (view.queued_tokens + num_tokens - view.match_tokens) / view.tokens_per_s
