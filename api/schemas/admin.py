"""Bodies of `/admin`: the scheduling policy, the prefix cache and its pins, and what was decided about a request.

What an administrator reads that the engine says in the same words is in `llmfw.core.base.control`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from llmfw.core.base.control import PinInfo, RequestTrace

from .common import Body, SmallInt


class PolicyRequest(Body, kw_only=True):
    """Body of PUT /admin/policy."""

    name: str
    options: dict[str, str | int | float | bool] | None = None


class PinRequest(Body, kw_only=True):
    """Body of POST /admin/cache/pins: a prefix as text, as messages, or as tokens, and for how long it is kept.

    Attributes:
        ttl_s: seconds.
        ttl: the same in words: "90s", "15m", "12h", "7d".
        compute: compute what is not cached now, instead of waiting for a request that does.
    """

    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    input_ids: list[SmallInt] | None = None
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    ttl_s: float | None = None
    ttl: str | None = None
    cache_salt: str | None = None
    compute: bool | None = None


class CachedPrefix(msgspec.Struct, kw_only=True):
    """One prefix: the figures of `llmfw.core.base.control.PrefixInfo`, and how its text begins and ends.

    Attributes:
        first_text: of up to 64 tokens.
        last_text: the same; empty where `first_text` is all.
    """

    num_tokens: int
    own_tokens: int
    num_below: int
    hits: int
    age_s: float
    users: int
    pinned: bool
    cache_salt: str
    first_text: str
    last_text: str


class CacheReply(msgspec.Struct, kw_only=True):
    """The prefix cache: the figures of `llmfw.core.base.control.CacheView`."""

    num_tokens: int
    num_locked: int
    num_pinned: int
    num_nodes: int
    num_evicted: int
    num_hit: int
    num_asked: int
    eviction: str
    prefixes: list[CachedPrefix]
    pins: list[PinInfo]


class TraceReply(msgspec.Struct, kw_only=True):
    """What was decided about a client's request.

    Attributes:
        id: as it was asked for.
        traces: one for each choice.
    """

    id: str
    traces: list[RequestTrace]
