"""One of several engines: its client, its requests and its prefix cache."""

from __future__ import annotations

import asyncio
import time
from typing import Literal

from llmfw.core.base.engine_info import EngineStats
from llmfw.core.base.errors import EngineDeadError
from llmfw.core.base.replica_commands import ReplicaInfo

from ..client import ReplicaState
from ..prefix_index import PrefixIndex
from ..supervisor import SupervisedEngineClient
from .replica_load import Place
from .routed_engine import RoutedEngine
from .router_accuracy import RouterAccuracy

PATIENCE_S = 2.0
"""Seconds to wait for the statistics of an engine, which may be in a long step or hang. The statistics of
other engines must not wait for this engine.
"""


class Replica(RoutedEngine):
    """An engine of a pool.

    Args:
        index: its number, from 0.
        client: client that starts its process, and replaces it when it ends.

    Attributes:
        was_usable, was_quiet: whether it was usable, or quiet, when the pool last looked.
        is_draining: whether it gets no new requests.
        mirror: copy of the prefix cache that its process has reported.
        accuracy: the router's estimates for its live requests, and the measured times.
    """

    __slots__ = ("accuracy", "client", "is_draining", "was_quiet", "was_usable")

    def __init__(self, index: int, client: SupervisedEngineClient) -> None:
        super().__init__(index, client.mirror)
        self.client = client
        self.was_usable = True
        self.was_quiet = self.is_draining = False
        self.accuracy = RouterAccuracy()

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
    def is_quiet(self) -> bool:
        """Whether the engine has shown no sign of life lately, but does not count as hung yet."""
        return self.client.is_usable and self.client.is_quiet

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

    async def stats(self) -> EngineStats | None:
        """Return the engine's statistics; None if the engine does not answer within PATIENCE_S."""
        if not self.is_usable:
            return None
        try:
            return await asyncio.wait_for(self.client.stats(), PATIENCE_S)
        except (EngineDeadError, TimeoutError):
            return None
