"""Bodies of `/admin`: the scheduling policy, the prefix cache and its pins, and traces of requests.

Replies that the engine already returns in the right form are defined in `llmfw.core.base.control`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from llmfw.core.base.control import PinInfo, RequestTrace

from .common import Body, SmallInt


class NoFields(Body):
    """Body of a request that needs none; all of its fields are reported as ignored."""


class PolicyRequest(Body, kw_only=True):
    """Body of PUT /admin/policy."""

    name: str
    options: dict[str, str | int | float | bool] | None = None


class PinRequest(Body, kw_only=True):
    """Body of POST /admin/cache/pins: a prefix as text, as messages or as token ids, and how long to pin it.

    Attributes:
        ttl_s: time to pin it, in seconds.
        ttl: time to pin it, with a unit: "90s", "15m", "12h", "7d".
        tenant: tenant whose requests may use the prefix, if each API key has cached prefixes of its own.
        model: the served model, or the adapter whose requests may use the prefix.
        compute: whether to compute uncached tokens of the prefix now, instead of when a request needs them.
    """

    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    input_ids: list[SmallInt] | None = None
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    ttl_s: float | None = None
    ttl: str | None = None
    cache_salt: str | None = None
    tenant: str | None = None
    model: str | None = None
    compute: bool | None = None


class CachedPrefix(msgspec.Struct, kw_only=True):
    """One cached prefix: the fields of `llmfw.core.base.control.PrefixInfo`, and the text at its two ends.

    Attributes:
        adapter: adapter of the requests that may use it; "": the model alone.
        first_text: text of its first tokens, at most 64.
        last_text: text of its last tokens, at most 64; empty if `first_text` is the whole prefix.
        replica: number of the engine that has it; missing if the server has one engine.
    """

    num_tokens: int
    own_tokens: int
    num_below: int
    hits: int
    age_s: float
    users: int
    pinned: bool
    tenant: str
    cache_salt: str
    adapter: str
    first_text: str
    last_text: str
    replica: int | msgspec.UnsetType = msgspec.UNSET


class CacheReply(msgspec.Struct, kw_only=True):
    """The state of the prefix cache: the fields of `llmfw.core.base.control.CacheView`."""

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
    num_snapshots: int
    max_snapshots: int


class TraceReply(msgspec.Struct, kw_only=True):
    """The scheduling decisions about a client's request.

    Attributes:
        id: id of the request, as in the URL.
        traces: one trace for each choice.
    """

    id: str
    traces: list[RequestTrace]
