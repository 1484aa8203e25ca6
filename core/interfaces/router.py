"""The interface of a router, which chooses the engine of each request if a server has several (`--replicas`).

A router sees only numbers: no prompts, and no engines. It runs in the API process, on the event loop, for
each request.

A faulty router fails no request: if it raises, or returns something other than one of the engines, llmfw logs
that once with the name of the plugin. From then on, the engine with the fewest queued tokens is chosen.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import msgspec


class RoutedRequest(msgspec.Struct, frozen=True):
    """A request, as a router sees it.

    Attributes:
        num_tokens: number of tokens of its prompt, or of all texts to embed.
        tenant: API key or user that it belongs to; "" if there is none.
        cache_salt: only requests with the same salt share cached prefixes.
        deferrable: whether it runs only in the capacity that other requests leave, such as a line of a batch.
    """

    num_tokens: int
    tenant: str = ""
    cache_salt: str = ""
    deferrable: bool = False


class ReplicaView(msgspec.Struct, frozen=True):
    """One of the engines, as a router sees it.

    Attributes:
        index: number of the engine, from 0. The list has no engines that cannot take requests now, so numbers
            may be missing.
        num_waiting: number of its requests without output.
        num_running: number of its requests with output.
        queued_tokens: number of prompt tokens still to be computed for its waiting requests. Tokens that
            matched do not count if the router has `needs_matches`. Deferrable requests count only if this
            request is deferrable, because other requests do not wait for them.
        match_tokens: number of leading tokens of this request's prompt that the engine need not compute,
            because they are in its prefix cache, or it computes them for other requests. 0 unless the router
            has `needs_matches`.
        tokens_per_s: prompt tokens that it computes per second, by recent measurements; 0.0: not measured
            yet. Depends on the sizes of its last steps: equal engines may have very different figures.
        last_chosen: number of the request for which it was chosen last; 0: never. Smaller numbers are longer
            ago.
    """

    index: int
    num_waiting: int = 0
    num_running: int = 0
    queued_tokens: int = 0
    match_tokens: int = 0
    tokens_per_s: float = 0.0
    last_chosen: int = 0


class Router(ABC):
    """Chooses an engine for each request. The API process builds one router when it starts.

    Attributes:
        needs_matches: whether `match_tokens` is filled in. Engines then report what their prefix caches hold.
    """

    needs_matches: ClassVar[bool] = False

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the component, set by `-o router.key=value`. A router with options overrides this."""

    def __init__(self, options: Options) -> None:
        self.options = options

    @abstractmethod
    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> ReplicaView:
        """Return one of the engines.

        Called for each request, and again if its engine dies. Not called if only one engine can take
        requests. Must return at once, because the API's event loop waits: in 50 µs at most.

        Args:
            replicas: engines that can take the request, by ascending `index`; at least two.
        """
