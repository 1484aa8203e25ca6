"""Requests of tenants with limits are counted and refused, and those of others pass as they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from llmfw.api.access.keyring import Keyring
from llmfw.api.access.limited_client import LimitedEngineClient
from llmfw.api.access.principals import Known
from llmfw.api.access.tenant_loads import TenantLoads
from llmfw.core.base.config import ServerConfig
from llmfw.core.base.errors import OverloadedError, RateLimitError
from llmfw.core.base.request import EmbedRequest, FinishReason, Request, SamplingParams, TokenEvent
from llmfw.core.client.client import EngineClient
from llmfw.core.client.forwarding import ForwardingEngineClient
from llmfw.core.interfaces.tenant_limits import TenantLimits


class Inner(ForwardingEngineClient):
    """Answers each request with ten tokens, unless it is full."""

    is_full = False

    def __init__(self) -> None:
        super().__init__(cast("EngineClient", object()))  # it answers by itself
        self.sent: list[Any] = []

    async def generate(self, request: Request) -> AsyncGenerator[TokenEvent, None]:
        if self.is_full:
            raise OverloadedError("the queue is full")
        self.sent.append(request)
        yield TokenEvent(request.id, [1] * 9)
        yield TokenEvent(request.id, [1], FinishReason.STOP)

    async def embed(self, request: EmbedRequest) -> bytes:
        self.sent.append(request)
        return b""


@pytest.fixture
def inner() -> Inner:
    return Inner()


@pytest.fixture
def client(inner: Inner) -> LimitedEngineClient:
    loads = TenantLoads(Keyring(ServerConfig(served_model_name="m", authenticators="jwt")), lambda: 0.0)
    loads.note(Known("jwt/ann", None, TenantLimits(tokens_per_minute=40, max_requests=1)))
    return LimitedEngineClient(inner, loads)


async def run(client: EngineClient, tenant: str = "jwt/ann", **fields: Any) -> list[TokenEvent]:
    fields = {"tenant_is_key": True, "prompt": [1, 2, 3], **fields}
    request = Request(id="r", sampling=SamplingParams(), tenant=tenant, **fields)
    return [event async for event in client.generate(request)]


async def embed(client: EngineClient, **fields: Any) -> bytes:
    prompts = [[1] * 30, [2] * 10]
    return await client.embed(
        EmbedRequest(id="e", prompts=prompts, tenant="jwt/ann", tenant_is_key=True, **fields)
    )


async def test_generated_tokens_are_counted(client: LimitedEngineClient) -> None:
    for _ in range(3):
        assert len(await run(client)) == 2
    with pytest.raises(RateLimitError):
        await run(client)


async def test_a_stream_is_counted_as_it_runs(client: LimitedEngineClient) -> None:
    """A request that is closed early has used what it has yielded."""
    request = Request(
        id="r", prompt=[1] * 30, sampling=SamplingParams(), tenant="jwt/ann", tenant_is_key=True
    )
    events = client.generate(request)
    await anext(events)
    await events.aclose()
    with pytest.raises(RateLimitError):
        await run(client)
    await run(client, prompt=[1])


async def test_embedded_tokens_are_counted(client: LimitedEngineClient) -> None:
    await embed(client)
    with pytest.raises(RateLimitError):
        await embed(client)


async def test_requests_that_the_engine_refuses_are_not_counted(
    client: LimitedEngineClient, inner: Inner
) -> None:
    inner.is_full = True
    for _ in range(5):
        with pytest.raises(OverloadedError, match="the queue is full"):
            await run(client, prompt=[1] * 40)
    inner.is_full = False
    await run(client, prompt=[1] * 40)


async def test_the_engine_counts_live_requests_only(client: LimitedEngineClient, inner: Inner) -> None:
    await run(client)
    await run(client, deferrable=True)
    assert [each.tenant_max_requests for each in inner.sent] == [1, None]


async def test_an_ended_deferrable_request_lets_the_next_start(client: LimitedEngineClient) -> None:
    async with asyncio.timeout(5):
        for _ in range(2):
            await run(client, prompt=[1], deferrable=True)


@pytest.mark.parametrize("fields", [{"tenant": "bob"}, {"tenant_is_key": False}])
async def test_others_pass_as_they_are(
    client: LimitedEngineClient, inner: Inner, fields: dict[str, Any]
) -> None:
    for _ in range(10):
        await run(client, **fields)
    assert all(each.tenant_max_requests is None for each in inner.sent)


@pytest.mark.parametrize("tenant", ["bob", "jwt/ann"])
def test_only_limited_streams_pass_through(client: LimitedEngineClient, inner: Inner, tenant: str) -> None:
    """Other events cost nothing: their stream is the inner client's own."""
    request = Request(id="r", prompt=[1], sampling=SamplingParams(), tenant=tenant, tenant_is_key=True)
    stream: Any = client.generate(request)
    assert (stream.ag_code is Inner.generate.__code__) == (tenant == "bob")
