"""Commands that an administrator sends to a running engine, and its answers. Plain data, sent like requests.

A `Command` goes to the engine in a `Control`, which carries a number; its `ControlAnswer` carries the same one.
"""

from __future__ import annotations

import msgspec


class GetPolicy(msgspec.Struct, frozen=True, tag="get_policy"):
    """Ask which scheduling policy orders requests. The answer is a `PolicyInfo`."""


class SetPolicy(msgspec.Struct, frozen=True, tag="set_policy"):
    """Order requests by another policy from the next step on. No request is lost. The answer is a `PolicyInfo`.

    Attributes:
        name: name of a registered policy.
        options: the policy's options, by key without the component's name.
    """

    name: str
    options: dict[str, str] = {}


class PolicyInfo(msgspec.Struct, frozen=True, tag="policy"):
    """The policy in force.

    Attributes:
        name: requested name.
        options: requested options.
        failure: why first come, first served replaces the policy; None: the policy itself is in force.
        known: names of all registered policies.
    """

    name: str
    options: dict[str, str] = {}
    failure: str | None = None
    known: list[str] = []


class ViewCache(msgspec.Struct, frozen=True, tag="view_cache"):
    """Ask what the prefix cache holds. The answer is a `CacheView`.

    Attributes:
        most: maximum number of prefixes, from the one that saves most tokens by being shared on.
    """

    most: int = 50


class PrefixInfo(msgspec.Struct, frozen=True):
    """One prefix in the cache.

    Attributes:
        num_tokens: length of the prefix, from the first token on.
        own_tokens: tokens of its last edge, which its parent does not share.
        num_below: tokens of all prefixes that continue it.
        hits: number of requests that used it.
        age_s: seconds since it was last used.
        users: number of running requests that hold it, or a prefix below it.
        pinned: whether a pin keeps it.
        salt: `cache_salt` of the requests that may use it; "" if all may.
        first_ids, last_ids: up to 64 of its first and of its last token ids, to be shown as text.
    """

    num_tokens: int
    own_tokens: int
    num_below: int
    hits: int
    age_s: float
    users: int
    pinned: bool
    salt: str = ""
    first_ids: list[int] = []
    last_ids: list[int] = []


class PinInfo(msgspec.Struct, frozen=True, tag="pin"):
    """One pinned prefix.

    Attributes:
        id: id that unpins it.
        num_tokens: number of tokens to keep.
        num_cached: number of these tokens that are in the cache, and kept. The others are kept once they are computed.
        expires_in_s: seconds until it is unpinned.
    """

    id: str
    num_tokens: int
    num_cached: int
    expires_in_s: float


class CacheView(msgspec.Struct, frozen=True, tag="cache"):
    """The prefix cache at one moment. Counts are of tokens.

    Attributes:
        num_tokens: tokens in the cache.
        num_locked: tokens in the cache that running requests or pins hold.
        num_pinned: tokens in the cache that pins hold.
        num_nodes: number of the tree's edges.
        num_evicted: tokens evicted since start.
        num_hit, num_asked: prompt tokens found, and looked up, since start.
        eviction: name of the rule by which prefixes are evicted.
        prefixes: the prefixes that save most tokens by being shared, most first.
        pins: all pins.
    """

    num_tokens: int
    num_locked: int
    num_pinned: int
    num_nodes: int
    num_evicted: int
    num_hit: int
    num_asked: int
    eviction: str
    prefixes: list[PrefixInfo] = []
    pins: list[PinInfo] = []


class FlushCache(msgspec.Struct, frozen=True, tag="flush_cache"):
    """Forget every prefix that no running request and no pin holds. The answer is a `CacheView`."""


class PinPrefix(msgspec.Struct, frozen=True, tag="pin_prefix"):
    """Keep a prefix from eviction, from now on or as soon as it is computed. The answer is a `PinInfo`.

    Attributes:
        token_ids: token ids of the prefix; whole pages of it are kept.
        ttl_s: seconds until the pin expires.
        salt: `cache_salt` of the requests that may use it.
    """

    token_ids: list[int]
    ttl_s: float
    salt: str = ""


class UnpinPrefix(msgspec.Struct, frozen=True, tag="unpin_prefix"):
    """Remove a pin. The answer is a `PinInfo` that has expired."""

    id: str


class GetTrace(msgspec.Struct, frozen=True, tag="get_trace"):
    """Ask for the scheduler's decisions about a request. The answer is a `RequestTrace`.

    Attributes:
        id: id of the request.
    """

    id: str


class TraceEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One decision about a request, or a run of equal consecutive ones.

    Attributes:
        kind: "arrived", "waits", "admitted", "computed", "retracted", "ended".
        at_s: seconds from the request's arrival to the decision.
        until_s: seconds from the request's arrival to the last decision of a run of equal ones.
        first_step, last_step: numbers of the engine's steps.
        reason: why the request waits, was retracted, or ended.
        num_tokens: "admitted": tokens found in the cache; "computed": tokens computed in these steps.
        num_ahead: number of waiting requests that the policy last placed before it.
    """

    kind: str
    at_s: float
    until_s: float = 0.0
    first_step: int = 0
    last_step: int = 0
    reason: str = ""
    num_tokens: int = 0
    num_ahead: int = 0


class RequestTrace(msgspec.Struct, frozen=True, tag="trace"):
    """All decisions about one request, in order.

    Attributes:
        arrived_at: seconds since the epoch.
        num_left_out: number of dropped entries in the middle.
    """

    id: str
    arrived_at: float
    prompt_tokens: int
    entries: list[TraceEntry]
    num_left_out: int = 0


Command = GetPolicy | SetPolicy | ViewCache | FlushCache | PinPrefix | UnpinPrefix | GetTrace
Answer = PolicyInfo | CacheView | PinInfo | RequestTrace
