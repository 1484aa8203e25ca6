"""Sends each request to the engine that it names, to its companions' engine, or to the router's choice."""

from __future__ import annotations

from collections.abc import Sequence

from llmfw.core.base.errors import EngineRestartingError, RequestError
from llmfw.core.base.request import EmbedRequest, Request
from llmfw.core.interfaces.router import ReplicaView, RoutedRequest

from ..cache_mirror import num_held
from ..whole_request import open_whole_request
from .companions import Companions
from .isolated_router import IsolatedRouter
from .pool_adapters import PoolAdapters
from .prompt_hashes import prompt_hashes
from .replica import Replica
from .replica_load import Place
from .replica_set import ReplicaSet


class Routing:
    """Chooses engines, and counts the requests that go to each.

    Args:
        replicas: all engines.
        router: chooses the engine of a request.
        adapters: adapters of the engines. Each adapter has its own cached prefixes.
    """

    def __init__(self, replicas: ReplicaSet, router: IsolatedRouter, adapters: PoolAdapters) -> None:
        self._replicas = replicas
        self._adapters = adapters
        self._router = router
        self._companions = Companions()
        self._turns = 0

    def enter(self, request: Request | EmbedRequest, usable: Sequence[Replica]) -> tuple[Replica, Place]:
        """Return the engine for a request, and the request's place on this engine.

        Args:
            usable: engines that take requests now, at least one.

        Raises:
            RequestError: the request names an engine that does not exist.
            EngineRestartingError: the request names an engine that does not take requests now.
        """
        num_tokens = num_tokens_of(request)
        block = next((each.mirror.block for each in usable if each.mirror.block), 0)
        hashes = prompt_hashes(request, block if self._router.needs_matches else 0, self._adapters.digests)
        held = self._replicas.prefixes.num_held(hashes)  # for all engines at once
        deferrable, num_hashes = request.deferrable, len(hashes)

        def view_of(each: Replica) -> ReplicaView:
            num_blocks = held.get(each.index, 0) if held else 0
            if num_blocks < num_hashes and hashes[num_blocks] in each.load.awaited:
                num_blocks += num_held(hashes[num_blocks:], each.load.awaited)
            match_tokens = min(num_blocks * block, num_tokens - 1) if num_blocks else 0
            return each.view(match_tokens, deferrable)

        replica = self._named(request) or self._companion(request, usable)
        if replica is None:
            view = self._router.choose(_routed(request, num_tokens), [view_of(each) for each in usable])
            replica = self._replicas[view.index]
            self._companions.note(request, replica)
        else:
            view = view_of(replica)
        self._turns += 1
        replica.load.last_chosen = self._turns
        estimated_s = _estimated_s(view, num_tokens)
        if estimated_s is not None and (whole := open_whole_request()) is not None:
            whole.note_estimate(estimated_s)
        place = Place(
            num_tokens - view.match_tokens, hashes, deferrable=request.deferrable, estimated_s=estimated_s
        )
        replica.load.enter(place)
        return replica, place

    def _named(self, request: Request | EmbedRequest) -> Replica | None:
        wanted = None if isinstance(request, EmbedRequest) else request.replica
        if wanted is None:
            return None
        if (replica := self._replicas.find(wanted)) is None:
            there = ", ".join(str(each.index) for each in self._replicas)
            raise RequestError(f"replica is {wanted}; the engines are {there}", param="replica")
        if not replica.is_usable:
            raise EngineRestartingError(replica.client.outage or "the engine sleeps")
        return replica

    def _companion(self, request: Request | EmbedRequest, usable: Sequence[Replica]) -> Replica | None:
        found = self._companions.replica_of(request)
        return found if found is not None and found in usable else None


def num_tokens_of(request: Request | EmbedRequest) -> int:
    """Return the number of tokens of a request's prompt, or of all its prompts."""
    return sum(map(len, request.prompts)) if isinstance(request, EmbedRequest) else len(request.prompt)


def _estimated_s(view: ReplicaView, num_tokens: int) -> float | None:
    """Return the seconds until an engine has computed a prompt; None: its speed has not been measured."""
    if not view.tokens_per_s:
        return None
    return (view.queued_tokens + num_tokens - view.match_tokens) / view.tokens_per_s


def _routed(request: Request | EmbedRequest, num_tokens: int) -> RoutedRequest:
    salt = "" if isinstance(request, EmbedRequest) else request.cache_salt
    return RoutedRequest(num_tokens, request.tenant, salt, request.deferrable)
