"""What an administrator may ask of a running engine, and what it answers. Plain data, sent like requests are.

A `Command` goes to the engine in a `Control`, which carries a number; its `ControlAnswer` carries the same one.
"""

from __future__ import annotations

import msgspec


class GetPolicy(msgspec.Struct, frozen=True, tag="get_policy"):
    """Which scheduling policy orders requests? Answered by a `PolicyInfo`."""


class SetPolicy(msgspec.Struct, frozen=True, tag="set_policy"):
    """Order requests by another policy from the next step on. No request is lost. Answered by a `PolicyInfo`.

    Attributes:
        name: of a registered policy.
        options: its own, by key without the part's name.
    """

    name: str
    options: dict[str, str] = {}


class PolicyInfo(msgspec.Struct, frozen=True, tag="policy"):
    """The policy in force.

    Attributes:
        name: as it was asked for.
        options: as they were given.
        failure: why first come, first served is in force in its stead; None: it is not.
        known: names of all policies that may be asked for.
    """

    name: str
    options: dict[str, str] = {}
    failure: str | None = None
    known: list[str] = []


class ViewCache(msgspec.Struct, frozen=True, tag="view_cache"):
    """What does the prefix cache hold? Answered by a `CacheView`.

    Attributes:
        most: prefixes to tell of, the largest shared ones.
    """

    most: int = 50


class PrefixInfo(msgspec.Struct, frozen=True):
    """One prefix in the cache.

    Attributes:
        num_tokens: from the first token on.
        own_tokens: of these, those of its last edge: what is not shared with its parent.
        num_below: tokens of all prefixes that go on from it.
        hits: how often a request used it.
        age_s: seconds since it was last used.
        users: running requests that hold it, or one below it.
        pinned: whether a pin keeps it.
        salt: whose it is (`cache_salt`); "" where it is for all.
        first_ids, last_ids: up to 64 of its first and of its last token ids, to be told as text.
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
        id: by which it is unpinned.
        num_tokens: that it is to keep.
        num_cached: of these, how many are in the cache, and kept. The others are kept as soon as they are computed.
        expires_in_s: seconds until it is unpinned.
    """

    id: str
    num_tokens: int
    num_cached: int
    expires_in_s: float


class CacheView(msgspec.Struct, frozen=True, tag="cache"):
    """The prefix cache at one moment. Counts are of tokens.

    Attributes:
        num_tokens: in the cache.
        num_locked: of these, held by running requests or pins.
        num_pinned: of these, held by pins.
        num_nodes: edges of the tree.
        num_evicted: so far.
        num_hit, num_asked: prompt tokens found, and looked for, so far.
        eviction: name of the rule by which prefixes go.
        prefixes: those that most tokens share, first.
        pins: all.
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
    """Forget every prefix that no running request and no pin holds. Answered by a `CacheView`."""


class PinPrefix(msgspec.Struct, frozen=True, tag="pin_prefix"):
    """Keep a prefix from eviction, from now on or as soon as it is computed. Answered by a `PinInfo`.

    Attributes:
        token_ids: of the prefix; whole pages of it are kept.
        ttl_s: seconds for which it is kept.
        salt: whose it is (`cache_salt`).
    """

    token_ids: list[int]
    ttl_s: float
    salt: str = ""


class UnpinPrefix(msgspec.Struct, frozen=True, tag="unpin_prefix"):
    """Let a pinned prefix go. Answered by a `PinInfo` that has expired."""

    id: str


class GetTrace(msgspec.Struct, frozen=True, tag="get_trace"):
    """What was decided about a request? Answered by a `RequestTrace`.

    Attributes:
        id: of the request.
    """

    id: str


class TraceEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One decision, or a run of equal ones.

    Attributes:
        kind: "arrived", "waits", "admitted", "computed", "retracted", "ended".
        at_s: seconds since the request came.
        until_s: of a run of equal ones, when the last of them was made.
        first_step, last_step: numbers of the engine's steps.
        reason: why it waits, was retracted, or ended.
        num_tokens: admitted: found in the cache; computed: in these steps.
        num_ahead: of those that wait, how many the policy placed before it, at last.
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
    """Everything that was decided about one request, in order.

    Attributes:
        arrived_at: seconds since the epoch.
        num_left_out: entries in the middle that are not kept any more.
    """

    id: str
    arrived_at: float
    prompt_tokens: int
    entries: list[TraceEntry]
    num_left_out: int = 0


Command = GetPolicy | SetPolicy | ViewCache | FlushCache | PinPrefix | UnpinPrefix | GetTrace
Answer = PolicyInfo | CacheView | PinInfo | RequestTrace
