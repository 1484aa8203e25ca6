"""Lists, drains, adds and removes the engines of a server for administrators."""

from __future__ import annotations

from llmfw.core.base.errors import RequestError
from llmfw.core.base.replica_commands import (
    AddReplica,
    DrainReplica,
    ListReplicas,
    RemoveReplica,
    ReplicaCommand,
    ReplicaInfo,
    ReplicaList,
    UndrainReplica,
)
from llmfw.core.client.client import EngineClient

MAX_INDEX = 255
"""Largest number of an engine."""


class ReplicaService:
    """Sends an administrator's commands about engines.

    Args:
        client: a started client of the engines.
    """

    def __init__(self, client: EngineClient) -> None:
        self._client = client

    async def list(self) -> ReplicaList:
        """Return the state of all engines."""
        found = await self._client.control(ListReplicas())
        assert isinstance(found, ReplicaList), f"ListReplicas was answered by {found!r}"
        return found

    async def drain(self, index: str) -> ReplicaInfo:
        """Stop sending new requests to an engine.

        Args:
            index: number of the engine, as text.

        Raises:
            RequestError: the text is not a number, there is no such engine, or no other engine accepts
                requests.
        """
        return await self._ask(DrainReplica(_number(index)))

    async def undrain(self, index: str) -> ReplicaInfo:
        """Send requests to an engine again; see `drain`."""
        return await self._ask(UndrainReplica(_number(index)))

    async def add(self) -> ReplicaInfo:
        """Start another engine, and return once it is ready."""
        return await self._ask(AddReplica())

    async def remove(self, index: str, timeout_s: float) -> ReplicaInfo:
        """Drain an engine, end its process, and return once it has ended; see `drain`.

        Args:
            timeout_s: longest time to wait for its requests, in seconds.
        """
        return await self._ask(RemoveReplica(_number(index), timeout_s))

    async def _ask(self, command: ReplicaCommand) -> ReplicaInfo:
        found = await self._client.control(command)
        assert isinstance(found, ReplicaInfo), f"{type(command).__name__} was answered by {found!r}"
        return found


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 3 and int(text) <= MAX_INDEX):
        raise RequestError(
            f"the engine is {text[:100]!r}; it must be a number from 0 to {MAX_INDEX}", param="index"
        )
    return int(text)
