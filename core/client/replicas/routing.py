"""Sends each request to the engine that it names, to its companions' engine, or to the router's choice."""

from __future__ import annotations

from collections.abc import Sequence

from llmfw.core.base.errors import EngineRestartingError, RequestError
from llmfw.core.base.request import EmbedRequest, Request
from llmfw.core.interfaces.router import RoutedRequest

from ..whole_request import open_whole_request
from .companions import Companions
from .dispatcher import Dispatcher
from .isolated_router import IsolatedRouter
from .pool_adapters import PoolAdapters
from .replica import Replica
from .replica_load import Place
from .replica_set import ReplicaSet
from .request_prefixes import prompt_prefixes


class Routing:
    """Chooses the engine of each request.

    Args:
        replicas: all engines.
        router: chooses the engine of a request.
        adapters: adapters of the engines. Each adapter has its own cached prefixes.
    """

    def __init__(self, replicas: ReplicaSet, router: IsolatedRouter, adapters: PoolAdapters) -> None:
        self._replicas = replicas
        self._adapters = adapters
        self._dispatcher = Dispatcher(router, replicas.prefixes)
        self._companions = Companions()

    def enter(self, request: Request | EmbedRequest, usable: Sequence[Replica]) -> tuple[Replica, Place]:
        """Return the engine for a request, and the request's place on this engine.

        Args:
            usable: engines that take requests now, at least one.

        Raises:
            RequestError: the request names an engine that does not exist.
            EngineRestartingError: the request names an engine that does not take requests now.
        """
        block = next((each.mirror.block for each in usable if each.mirror.block), 0)
        needs_matches = self._dispatcher.router.needs_matches
        prompt = prompt_prefixes(request, block if needs_matches else 0, self._adapters.digests)
        fixed = self._named(request) or self._companion(request, usable)
        replica, place = self._dispatcher.enter(_routed(request), prompt, block, usable, fixed)
        if fixed is None:
            self._companions.note(request, replica)
        if place.estimated_s is not None and (whole := open_whole_request()) is not None:
            whole.note_estimate(place.estimated_s)
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


def _routed(request: Request | EmbedRequest) -> RoutedRequest:
    salt = "" if isinstance(request, EmbedRequest) else request.cache_salt
    return RoutedRequest(num_tokens_of(request), request.tenant, salt, request.deferrable)
