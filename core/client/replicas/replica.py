"""One of several engines: its client, and what it has to do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from llmfw.core.base.engine_info import EngineStats
from llmfw.core.base.errors import EngineDeadError
from llmfw.core.base.replica_commands import ReplicaInfo
from llmfw.core.interfaces.router import ReplicaView

from ..cache_mirror import num_held
from ..client import ReplicaState
from ..supervisor import SupervisedEngineClient
from .replica_load import ReplicaLoad

PATIENCE_S = 2.0
"""Seconds to wait for the statistics of an engine, which may be in a long step or hang. The others' must not wait for it."""


@dataclass(eq=False, slots=True)
class Replica:
    """An engine of a pool.

    Attributes:
        index: its number, from 0.
        client: client that starts its process, and replaces it when it ends.
        load: requests that it has.
        was_usable: whether it was usable when the pool last looked.
        is_draining: whether it gets no new requests.
    """

    index: int
    client: SupervisedEngineClient
    load: ReplicaLoad = field(default_factory=ReplicaLoad)
    was_usable: bool = True
    is_draining: bool = False

    @property
    def is_usable(self) -> bool:
        """Whether it answers now."""
        return self.client.is_usable

    @property
    def takes_requests(self) -> bool:
        """Whether it gets new requests now."""
        return self.is_usable and not self.is_draining

    @property
    def state(self) -> ReplicaState:
        """Description for other code."""
        outage = None if self.is_usable else self.client.outage or "the engine sleeps"
        return ReplicaState(outage, self.client.num_restarts, self.index)

    def info(self, *, is_asleep: bool = False) -> ReplicaInfo:
        """Return its description for administrators.

        Args:
            is_asleep: whether the engines sleep.
        """
        load, mirror = self.load, self.client.mirror
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

    def view(self, hashes: Sequence[int], num_tokens: int, *, deferrable: bool) -> ReplicaView:
        """Return what a router sees of it.

        Args:
            hashes: hash of each prefix of a prompt that ends with a block; empty: no match is looked for.
            num_tokens: number of tokens of the prompt.
            deferrable: whether the request is deferrable. Others do not wait for deferrable ones.
        """
        load, mirror = self.load, self.client.mirror
        num_matched = 0
        if hashes and mirror.block:
            num_matched = max(mirror.num_matched(hashes), num_held(hashes, load.awaited))
        return ReplicaView(
            self.index,
            load.num_waiting,
            load.num_running,
            load.queued_tokens if deferrable else load.queued_tokens - load.deferrable_tokens,
            max(0, min(num_matched * mirror.block, num_tokens - 1)),
            mirror.tokens_per_s,
            load.last_chosen,
        )

    async def stats(self) -> EngineStats | None:
        """Return its statistics; None if it does not answer within PATIENCE_S."""
        if not self.is_usable:
            return None
        try:
            return await asyncio.wait_for(self.client.stats(), PATIENCE_S)
        except (EngineDeadError, TimeoutError):
            return None
