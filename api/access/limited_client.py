"""An engine client that holds each tenant to its limits.

Requests per minute and tokens per minute are counted here, in the API process, where all requests of a tenant
pass: from routes, plugins, batches and background responses. Limits on requests at once go with each request
to the engine, which counts them together with its queue.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TypeVar

import msgspec

from llmfw.core.base.errors import OverloadedError
from llmfw.core.base.request import EmbedRequest, Request, TokenEvent
from llmfw.core.client.client import EngineClient, RequestWatch
from llmfw.core.client.forwarding import ForwardingEngineClient

from .tenant_load import TenantLoad
from .tenant_loads import TenantLoads

R = TypeVar("R", Request, EmbedRequest)


class LimitedEngineClient(ForwardingEngineClient):
    """Passes requests to another client, if the limits of their tenants allow.

    If a rate is used up, requests are refused; deferrable requests wait instead. Only tenants with a key or a
    principal have limits. Requests of all other tenants pass unchanged.

    Args:
        client: the other client.
        loads: loads of the tenants.
    """

    def __init__(self, client: EngineClient, loads: TenantLoads) -> None:
        super().__init__(client)
        self._loads = loads

    def generate(self, request: Request) -> AsyncGenerator[TokenEvent, None]:
        """Send a request and yield its events.

        Raises:
            RateLimitError: the tenant has used up a rate. Otherwise as in `EngineClient.generate`.
        """
        load = self._load_of(request)
        return self._client.generate(request) if load is None else self._limited(request, load)

    def watched(self, request: Request, watch: RequestWatch) -> AsyncGenerator[TokenEvent, None]:
        if self._load_of(request) is None:
            return self._client.watched(request, watch)
        return super().watched(request, watch)

    def seconds_until(self, request: Request) -> float:
        """Return the seconds until the tenant's rates allow a request. Deferrable requests may be sent at any
        time: they wait here.
        """
        load = None if request.deferrable else self._load_of(request)
        return 0.0 if load is None else load.seconds_until(len(request.prompt))

    async def embed(self, request: EmbedRequest) -> bytes:
        """Send a request and return its vectors.

        Raises:
            RateLimitError: the tenant has used up a rate. Otherwise as in `EngineClient.embed`.
        """
        load = self._load_of(request)
        if load is None:
            return await self._client.embed(request)
        async with _counted(request, load, sum(map(len, request.prompts))):
            return await self._client.embed(_with_limits(request, load))

    async def _limited(self, request: Request, load: TenantLoad) -> AsyncGenerator[TokenEvent, None]:
        async with (
            _counted(request, load, len(request.prompt)),
            contextlib.aclosing(self._client.generate(_with_limits(request, load))) as events,
        ):
            async for event in events:
                if event.token_ids:
                    load.note_output(len(event.token_ids))
                yield event

    def _load_of(self, request: Request | EmbedRequest) -> TenantLoad | None:
        return self._loads.of(request.tenant) if request.tenant_is_key else None


@contextlib.asynccontextmanager
async def _counted(request: Request | EmbedRequest, load: TenantLoad, num_tokens: int) -> AsyncIterator[None]:
    """Count a request. If the engine refuses it, uncount it."""
    if request.deferrable:
        await load.start_deferrable(num_tokens)
    else:
        load.start(num_tokens)
    try:
        yield
    except OverloadedError:
        load.give_back(num_tokens)
        raise
    finally:
        if request.deferrable:
            load.leave()


def _with_limits(request: R, load: TenantLoad) -> R:
    """Add the engine's limits to a request. For deferrable requests, this client enforces the limits."""
    limits = load.limits
    if request.deferrable or (limits.max_requests is None and limits.max_queued_requests is None):
        return request
    return msgspec.structs.replace(
        request, tenant_max_requests=limits.max_requests, tenant_max_queued=limits.max_queued_requests
    )
