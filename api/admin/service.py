"""What an administrator may ask of a running server: a body → a command to the engine → a reply.

Knows nothing of HTTP, and not who is allowed to ask.
"""

from __future__ import annotations

import contextlib
import re
from typing import TypeVar

import msgspec

from llmfw.api.chat.service import ChatService
from llmfw.api.schemas.admin import CachedPrefix, CacheReply, PinRequest, PolicyRequest, TraceReply
from llmfw.api.text.generation import Generator
from llmfw.core.base.control import (
    CacheView,
    Command,
    FlushCache,
    GetPolicy,
    GetTrace,
    PinInfo,
    PinPrefix,
    PolicyInfo,
    PrefixInfo,
    RequestTrace,
    SetPolicy,
    UnpinPrefix,
    ViewCache,
)
from llmfw.core.base.errors import NotFoundError, RequestError
from llmfw.core.base.ids import sortable_id
from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.client.client import EngineClient

from .pinning import PinnedTokens, source_of, ttl_of

AnswerT = TypeVar("AnswerT")

_OF_A_CHAT = re.compile(r"^(msg|resp)_")
"""How ids of replies begin that a chat has made for another API."""


class AdminService:
    """Speaks to the engine for an administrator.

    Args:
        client: started.
        generator: has the tokenizer.
        chat: renders messages.
    """

    def __init__(self, client: EngineClient, generator: Generator, chat: ChatService) -> None:
        self._client = client
        self._tokenizer = generator.tokenizer
        self._pinned = PinnedTokens(generator, chat)

    async def policy(self) -> PolicyInfo:
        """Return the scheduling policy in force."""
        return await self._ask(GetPolicy(), PolicyInfo)

    async def set_policy(self, body: PolicyRequest) -> PolicyInfo:
        """Put another scheduling policy in force; raise RequestError if that cannot be: then the old one stays."""
        options = {key: _as_text(value) for key, value in (body.options or {}).items()}
        return await self._ask(SetPolicy(body.name, options), PolicyInfo)

    async def cache(self, most: int) -> CacheReply:
        """Return what the prefix cache holds, with so many of the prefixes that most tokens share."""
        return self._cache_reply(await self._ask(ViewCache(most), CacheView))

    async def flush(self) -> CacheReply:
        """Empty the prefix cache but for what is in use or pinned; return what is left."""
        return self._cache_reply(await self._ask(FlushCache(), CacheView))

    async def pin(self, body: PinRequest) -> PinInfo:
        """Keep a prefix from eviction, after computing it if the body asks for that.

        Raises:
            RequestError: names the field that is wrong, or says how much may be pinned.
        """
        ttl_s, salt = ttl_of(body), body.cache_salt or ""
        tokens = await self._pinned.of(body)
        try:
            pin = await self._ask(PinPrefix(tokens, ttl_s, salt), PinInfo)
        except RequestError as error:
            error.param = source_of(body) if error.param == "token_ids" else error.param
            raise
        if not body.compute or pin.num_cached == pin.num_tokens:
            return pin
        try:
            await self._compute(tokens, salt)
        except BaseException:  # nobody learns the pin's id
            await self._client.control(UnpinPrefix(pin.id))
            raise
        found = await self._ask(ViewCache(0), CacheView)
        return next((each for each in found.pins if each.id == pin.id), pin)

    async def unpin(self, pin_id: str) -> PinInfo:
        """Let a prefix go; raise NotFoundError if there is no such pin."""
        return await self._ask(UnpinPrefix(pin_id), PinInfo)

    async def trace(self, request_id: str) -> TraceReply:
        """Return what was decided about a request, by the id that its client saw, or by an engine's request's.

        Raises:
            NotFoundError: nothing is known of it.
            RequestError: nothing is traced.
        """
        known_as = _OF_A_CHAT.sub("chatcmpl-", request_id)
        traces: list[RequestTrace] = []
        with contextlib.suppress(NotFoundError):
            while True:  # its choices have numbers, from 0 on
                traces.append(await self._ask(GetTrace(f"{known_as}-{len(traces)}"), RequestTrace))
        if not traces:
            traces.append(await self._ask(GetTrace(request_id), RequestTrace))
        return TraceReply(id=request_id, traces=traces)

    async def _compute(self, tokens: list[int], salt: str) -> None:
        """Let the engine compute a prefix, and so cache it."""
        request = Request(
            id=sortable_id("pin-"),
            prompt=tokens,
            sampling=SamplingParams(max_tokens=1, temperature=0),
            cache_salt=salt,
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
        return CachedPrefix(
            **figures | {"cache_salt": figures.pop("salt")},
            first_text=self._tokenizer.decode(first, skip_special_tokens=False),
            last_text=self._tokenizer.decode(last, skip_special_tokens=False)
            if prefix.num_tokens > len(first)
            else "",
        )


def _as_text(value: str | float | bool) -> str:
    """Return an option's value as the command line would have it."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
