"""Answers administrators' requests by sending commands to the engine.

Does not depend on HTTP, and does not check who is allowed to ask.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TypeVar

import msgspec

from llmfw.api.access.key_caches import parts_of, salt_of_key
from llmfw.api.access.keyring import Keyring
from llmfw.api.chat.service import ChatService
from llmfw.api.schemas.admin import CachedPrefix, CacheReply, PinRequest, PolicyRequest, TraceReply
from llmfw.api.text.generation import Generator
from llmfw.core.base.adapter_salt import salt_parts
from llmfw.core.base.control import (
    CacheView,
    Command,
    FlushCache,
    GetPolicy,
    GetTrace,
    MemoryInfo,
    PinInfo,
    PinPrefix,
    PolicyInfo,
    PrefixInfo,
    RequestTrace,
    SetPolicy,
    Sleep,
    UnpinPrefix,
    ViewCache,
    Wake,
)
from llmfw.core.base.errors import NotFoundError, RequestError
from llmfw.core.base.ids import sortable_id
from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.client.client import EngineClient

from .pinning import PinnedTokens, source_of, ttl_of

AnswerT = TypeVar("AnswerT")

_OF_A_CHAT = re.compile(r"^(msg|resp)_")
"""Matches the prefix of reply ids in other APIs (Anthropic, Responses) whose requests run as chats."""


class AdminService:
    """Sends an administrator's commands to the engine.

    Args:
        client: client of the engine, already started.
        generator: generator with the tokenizer.
        chat: chat service that renders messages.
        keys: API keys that each have cached prefixes of their own; None: all clients share theirs.
    """

    def __init__(
        self,
        client: EngineClient,
        generator: Generator,
        chat: ChatService,
        keys: Keyring | None = None,
    ) -> None:
        self._client = client
        self._keys = keys
        self._tokenizer = generator.tokenizer
        self._names = generator.names
        self._pinned = PinnedTokens(generator, chat)

    @property
    def task(self) -> str:
        """What the model is for, such as "generate"."""
        return self._client.info.task

    @property
    def failure(self) -> str | None:
        """The reason why the engine has ended for good, or None."""
        return self._client.failure

    async def policy(self) -> PolicyInfo:
        """Return the current scheduling policy."""
        return await self._ask(GetPolicy(), PolicyInfo)

    async def set_policy(self, body: PolicyRequest) -> PolicyInfo:
        """Switch to another scheduling policy. If that fails, keep the old one and raise RequestError."""
        options = {key: _as_text(value) for key, value in (body.options or {}).items()}
        return await self._ask(SetPolicy(body.name, options), PolicyInfo)

    async def cache(self, most: int) -> CacheReply:
        """Return the state of the prefix cache.

        Args:
            most: maximum number of prefixes to return; prefixes that save more tokens are preferred.
        """
        return self._cache_reply(await self._ask(ViewCache(most), CacheView))

    async def flush(self, *, only_idle: bool = False) -> CacheReply:
        """Evict all prefixes that are neither in use nor pinned; return the resulting state of the cache.

        Args:
            only_idle: whether to raise RequestError while a request runs or waits.
        """
        return self._cache_reply(await self._ask(FlushCache(only_idle), CacheView))

    async def pin(self, body: PinRequest) -> PinInfo:
        """Pin a prefix against eviction. If the request sets `compute`, compute what is not cached yet.

        Raises:
            RequestError: a field is wrong or too much would be pinned; the error names the field or the
                limit.
        """
        ttl_s, tenant, own = ttl_of(body), self._tenant_of(body), body.cache_salt or ""
        salt = salt_of_key(tenant, own) if tenant else own
        await self._names.find(body.model, tenant)
        adapter = self._names.adapter_of(body.model)
        tokens = await self._pinned.of(body)
        try:
            pin = await self._ask(PinPrefix(tokens, ttl_s, salt, adapter), PinInfo)
        except RequestError as error:
            error.param = source_of(body) if error.param == "token_ids" else error.param
            raise
        if not body.compute or pin.num_cached == pin.num_tokens:
            return pin
        try:
            await self._compute_everywhere(tokens, tenant, own, adapter)
        except BaseException:  # the client does not get the pin's id, so it could not unpin it
            await self._client.control(UnpinPrefix(pin.id))
            raise
        found = await self._ask(ViewCache(0), CacheView)
        return next((each for each in found.pins if each.id == pin.id), pin)

    def _tenant_of(self, body: PinRequest) -> str:
        """Return the tenant that may use a pinned prefix; "" if clients share their cached prefixes."""
        if self._keys is None or not self._keys.has_tenants:
            if body.tenant:
                raise RequestError(
                    "all clients of this server share cached prefixes; leave tenant out", param="tenant"
                )
            return ""
        tenant = self._keys.only_tenant if body.tenant is None else body.tenant
        if tenant is None:
            raise RequestError(
                "each API key has cached prefixes of its own: name the tenant whose requests use this one, or start the "
                "server with --prefix-cache-scope server",
                param="tenant",
            )
        return tenant

    async def unpin(self, pin_id: str) -> PinInfo:
        """Remove a pin, so that its prefix can be evicted; raise NotFoundError if there is no such pin."""
        return await self._ask(UnpinPrefix(pin_id), PinInfo)

    async def sleep(self, timeout_s: float) -> MemoryInfo:
        """Release the engine's memory once live requests have ended; return the amount released.

        Raises:
            ConflictError: requests still run after `timeout_s` seconds; the engine stays awake.
            NotReadyError: the engine is already asleep.
        """
        return await self._ask(Sleep(timeout_s), MemoryInfo)

    async def wake(self) -> MemoryInfo:
        """Wake a sleeping engine by loading its model again; return the memory that this takes."""
        return await self._ask(Wake(), MemoryInfo)

    async def trace(self, request_id: str) -> TraceReply:
        """Return the traces of a request: the scheduler's decisions about each of its choices.

        Args:
            request_id: id of the reply that the client received, or of a request inside the engine.

        Raises:
            NotFoundError: no trace of this request is stored.
            RequestError: the server does not trace requests.
        """
        known_as = _OF_A_CHAT.sub("chatcmpl-", request_id)
        traces: list[RequestTrace] = []
        with contextlib.suppress(NotFoundError):
            while True:  # each choice has a trace; choices are numbered from 0
                traces.append(await self._ask(GetTrace(f"{known_as}-{len(traces)}"), RequestTrace))
        if not traces:
            traces.append(await self._ask(GetTrace(request_id), RequestTrace))
        return TraceReply(id=request_id, traces=traces)

    async def _compute_everywhere(self, tokens: list[int], tenant: str, salt: str, adapter: str) -> None:
        """Make each running engine compute and cache a prefix."""
        states = self._client.replicas
        running = [state.number for state in states if state.outage is None] if states else [None]
        await asyncio.gather(*(self._compute(tokens, tenant, salt, adapter, index) for index in running))

    async def _compute(
        self, tokens: list[int], tenant: str, salt: str, adapter: str, replica: int | None
    ) -> None:
        """Run a request whose prompt is the prefix, so that the engine computes and caches it."""
        request = Request(
            id=sortable_id("pin-"),
            prompt=tokens,
            sampling=SamplingParams(max_tokens=1, temperature=0),
            tenant=tenant,
            tenant_is_key=bool(tenant),
            cache_salt=salt,
            replica=replica,
            adapter=adapter,
        )
        async with contextlib.aclosing(self._client.generate(request)) as events:
            async for _ in events:
                pass

    async def _ask(self, command: Command, kind: type[AnswerT]) -> AnswerT:
        answer = await self._client.control(command)
        assert isinstance(answer, kind), f"the engine answered {type(command).__name__} by {answer!r}"
        return answer

    def _cache_reply(self, view: CacheView) -> CacheReply:
        figures = msgspec.structs.asdict(view)
        return CacheReply(**figures | {"prefixes": [self._prefix(prefix) for prefix in view.prefixes]})

    def _prefix(self, prefix: PrefixInfo) -> CachedPrefix:
        figures = msgspec.structs.asdict(prefix)
        first, last = figures.pop("first_ids"), figures.pop("last_ids")
        adapter, salt = salt_parts(figures.pop("salt"))
        tenant, salt = parts_of(salt)
        if figures["replica"] is None:
            del figures["replica"]
        return CachedPrefix(
            **figures | {"tenant": tenant, "cache_salt": salt, "adapter": adapter},
            first_text=self._tokenizer.decode(first, skip_special_tokens=False),
            last_text=self._tokenizer.decode(last, skip_special_tokens=False)
            if prefix.num_tokens > len(first)
            else "",
        )


def _as_text(value: str | float | bool) -> str:
    """Return an option's value as text, as on the command line."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
