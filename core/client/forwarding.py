"""A base class for engine clients that wrap another client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from llmfw.core.base.control import Answer, Command
from llmfw.core.base.engine_info import EngineInfo, EngineStats
from llmfw.core.base.errors import NotReadyError
from llmfw.core.base.request import EmbedRequest, FinishReason, Request, TokenEvent

from .client import EngineClient, ReplicaState


class ForwardingEngineClient(EngineClient):
    """Passes everything to another client, which its owner starts and closes.

    Properties are those of the innermost client, which a request reads several times: clients that forward
    change requests and commands, and no properties.

    Args:
        client: the other client.
    """

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self._innermost: EngineClient = (
            client._innermost if isinstance(client, ForwardingEngineClient) else client
        )

    @property
    def info(self) -> EngineInfo:
        return self._innermost.info

    @property
    def failure(self) -> str | None:
        return self._innermost.failure

    @property
    def outage(self) -> str | None:
        return self._innermost.outage

    @property
    def refusal(self) -> NotReadyError | None:
        return self._innermost.refusal

    @property
    def num_restarts(self) -> int:
        return self._innermost.num_restarts

    @property
    def num_continued(self) -> int:
        return self._innermost.num_continued

    @property
    def replicas(self) -> Sequence[ReplicaState]:
        return self._innermost.replicas

    async def start(self) -> None:
        """Do nothing: the other client's owner starts it."""

    def generate(self, request: Request) -> AsyncGenerator[TokenEvent, None]:
        return self._client.generate(request)

    def seconds_until(self, request: Request) -> float:
        return self._client.seconds_until(request)

    def note_end(self, request_id: str, reason: FinishReason) -> None:
        self._client.note_end(request_id, reason)

    async def embed(self, request: EmbedRequest) -> bytes:
        return await self._client.embed(request)

    async def stats(self) -> EngineStats:
        return await self._client.stats()

    async def replica_stats(self) -> Sequence[EngineStats | None]:
        return await self._client.replica_stats()

    async def control(self, command: Command) -> Answer:
        return await self._client.control(command)

    async def close(self) -> None:
        """Do nothing: the other client's owner closes it."""
