"""One of several engines, as far as routing needs it: its requests and its prefix cache."""

from __future__ import annotations

from llmfw.core.interfaces.router import ReplicaView

from ..cache_mirror import CacheMirror
from .replica_load import ReplicaLoad


class RoutedEngine:
    """An engine that requests can be routed to.

    Args:
        index: number of the engine, from 0.
        mirror: copy of the prefix cache that the engine has reported.

    Attributes:
        load: requests of the engine.
    """

    __slots__ = ("_last", "_last_version", "index", "load", "mirror")

    def __init__(self, index: int, mirror: CacheMirror) -> None:
        self.index = index
        self.mirror = mirror
        self.load = ReplicaLoad()
        self._last: ReplicaView | None = None  # for the last live request
        self._last_version = 0  # version of the load for which `_last` was made

    def view(self, match_tokens: int, deferrable: bool) -> ReplicaView:
        """Return the engine as a router sees it.

        Args:
            match_tokens: number of leading prompt tokens that the engine has cached.
            deferrable: whether the request is deferrable. Live requests do not wait for deferrable ones.
        """
        load, speed = self.load, self.mirror.tokens_per_s
        if deferrable:
            return self._new_view(match_tokens, deferrable)
        # An engine and the match of a common system prompt seldom change from one request to the next.
        view = self._last
        if (
            view is None
            or self._last_version != load.version
            or view.match_tokens != match_tokens
            or view.tokens_per_s != speed
        ):
            view = self._last = self._new_view(match_tokens, False)
            self._last_version = load.version
        return view

    def _new_view(self, match_tokens: int, deferrable: bool) -> ReplicaView:
        load = self.load
        return ReplicaView(
            self.index,
            load.num_waiting,
            load.num_running,
            load.queued_tokens if deferrable else load.queued_tokens - load.deferrable_tokens,
            match_tokens,
            self.mirror.tokens_per_s,
            load.last_chosen,
        )
