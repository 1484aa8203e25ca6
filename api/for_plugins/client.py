"""The engine client that plugins' routes get: every request belongs to the caller."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

import msgspec

from llmfw.api.text.terms import key_name
from llmfw.core.base.control import Answer, Command
from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import EmbedRequest, Request, TokenEvent
from llmfw.core.client.client import EngineClient
from llmfw.core.client.forwarding import ForwardingEngineClient


class CallerEngineClient(ForwardingEngineClient):
    """Passes requests to the engine as requests of the caller's tenant.

    Without an API key, the tenant is the one that the request names. Commands need an administrator.

    Args:
        client: the server's client.
        is_admin: returns whether the caller of the current request is an administrator.
    """

    def __init__(self, client: EngineClient, is_admin: Callable[[], bool]) -> None:
        super().__init__(client)
        self._is_admin = is_admin

    def generate(self, request: Request) -> AsyncGenerator[TokenEvent, None]:
        """Send a request for the caller's tenant, and yield its events."""
        if tenant := key_name.get():
            request = msgspec.structs.replace(request, tenant=tenant, tenant_is_key=True)
        elif request.tenant_is_key:
            request = msgspec.structs.replace(request, tenant_is_key=False)
        return super().generate(request)

    async def embed(self, request: EmbedRequest) -> bytes:
        """Send a request for the caller's tenant, and return its vectors."""
        if tenant := key_name.get():
            request = msgspec.structs.replace(request, tenant=tenant, tenant_is_key=True)
        elif request.tenant_is_key:
            request = msgspec.structs.replace(request, tenant_is_key=False)
        return await super().embed(request)

    async def control(self, command: Command) -> Answer:
        """Send an administrator's command and return its answer.

        Raises:
            RequestError: the caller is not an administrator; nothing was sent.
        """
        if not self._is_admin():
            raise RequestError(
                "the engine's commands need the admin key; send that", code="admin_forbidden", param=None
            )
        return await super().control(command)
