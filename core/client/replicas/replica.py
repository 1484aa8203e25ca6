"""One of several engines: its client, its requests and its prefix cache."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Literal

from llmfw.core.base.engine_info import EngineStats
from llmfw.core.base.errors import EngineDeadError
from llmfw.core.base.replica_commands import ReplicaInfo
from llmfw.core.interfaces.router import ReplicaView

from ..cache_mirror import CacheMirror
from ..client import ReplicaState
from ..prefix_index import PrefixIndex
from ..supervisor import SupervisedEngineClient
from .replica_load import Place, ReplicaLoad
from .router_accuracy import RouterAccuracy

PATIENCE_S = 2.0
"""Seconds to wait for the statistics of an engine, which may be in a long step or hang. The statistics of
other engines must not wait for this engine.
"""


@dataclass(eq=False, slots=True)
class Replica:
    """An engine of a pool.

    Attributes:
        index: its number, from 0.
        client: client that starts its process, and replaces it when it ends.
        load: requests of the engine.
        was_usable: whether it was usable when the pool last looked.
        is_draining: whether it gets no new requests.
        mirror: copy of the prefix cache that its process has reported.
        accuracy: the router's estimates for its live requests, and the measured times.
    """

    index: int
    client: SupervisedEngineClient
    load: ReplicaLoad = field(default_factory=ReplicaLoad)
    was_usable: bool = True
    is_draining: bool = False
    mirror: CacheMirror = field(init=False)
    accuracy: RouterAccuracy = field(default_factory=RouterAccuracy, init=False)
    _plain: ReplicaView | None = field(default=None, init=False)  # without a match, for a live request
    _plain_version: int = field(default=0, init=False)  # of the load

    def __post_init__(self) -> None:
        """Use the mirror of the first process."""
        self.mirror = self.client.mirror

    def attach(self, prefixes: PrefixIndex) -> None:
        """Publish the prefixes of the engine's current process in an index. Withdraws an earlier process."""
        if not self.mirror.is_published or self.mirror is not self.client.mirror:
            self.mirror.withdraw()
            self.mirror = self.client.mirror
            self.mirror.publish(prefixes, self.index)

    @property
    def is_usable(self) -> bool:
        """Whether the engine answers now."""
        return self.client.is_usable

    @property
    def takes_requests(self) -> bool:
        """Whether the engine gets new requests now."""
        return self.is_usable and not self.is_draining

    @property
    def state(self) -> ReplicaState:
        """Description for other code."""
        outage = None if self.is_usable else self.client.outage or "the engine sleeps"
        accuracy = self.accuracy
        return ReplicaState(outage, self.client.num_restarts, self.index, accuracy.estimated, accuracy.actual)

    def note_answer(self, place: Place) -> None:
        """Record that a request has its first output."""
        if place.is_waiting and place.estimated_s is not None and not place.deferrable:
            self.accuracy.note(place.estimated_s, time.monotonic() - place.sent_at)
        self.load.answered(place)

    def info(self, *, is_asleep: bool = False) -> ReplicaInfo:
        """Return the engine's description for administrators.

        Args:
            is_asleep: whether the engines sleep.
        """
        load, mirror = self.load, self.mirror
        return ReplicaInfo(
            index=self.index,
            state="asleep" if is_asleep else self._state_name(),
            num_waiting=load.num_waiting,
            num_running=load.num_running,
            queued_tokens=load.queued_tokens,
            queued_s=load.queued_tokens / mirror.tokens_per_s if mirror.tokens_per_s else None,
            tokens_per_s=mirror.tokens_per_s,
            cached_tokens=len(mirror) * mirror.block,
            num_restarts=self.client.num_restarts,
            outage=None if is_asleep else self.client.outage,
        )

    def _state_name(self) -> Literal["running", "draining", "drained", "restarting", "failed"]:
        if self.client.failure is not None:
            return "failed"
        if not self.is_usable:
            return "restarting"
        if not self.is_draining:
            return "running"
        return "draining" if self.load.num_requests else "drained"

    def view(self, match_tokens: int, deferrable: bool) -> ReplicaView:
        """Return the engine as a router sees it.

        Args:
            match_tokens: number of leading prompt tokens that the engine has cached.
            deferrable: whether the request is deferrable. Live requests do not wait for deferrable ones.
        """
        load, speed = self.load, self.mirror.tokens_per_s
        if match_tokens or deferrable:
            return self._new_view(match_tokens, deferrable)
        view = self._plain  # most engines have cached no part of most prompts, and seldom change
        if view is None or self._plain_version != load.version or view.tokens_per_s != speed:
            view = self._plain = self._new_view(0, False)
            self._plain_version = load.version
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

    async def stats(self) -> EngineStats | None:
        """Return the engine's statistics; None if the engine does not answer within PATIENCE_S."""
        if not self.is_usable:
            return None
        try:
            return await asyncio.wait_for(self.client.stats(), PATIENCE_S)
        except (EngineDeadError, TimeoutError):
            return None
