"""Commands that an administrator sends to a running engine, and the engine's answers.

They are plain data, and are sent like requests. A `Control` carries a `Command` and a number to the engine.
The `ControlAnswer` has the same number.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from .replica_commands import ReplicaCommand, ReplicaInfo, ReplicaList
from .steps_view import StepsView, ViewSteps
from .weights_command import LoadWeights, WeightsInfo


class GetPolicy(msgspec.Struct, frozen=True, tag="get_policy"):
    """Ask which scheduling policy orders requests. The answer is a `PolicyInfo`."""


class SetPolicy(msgspec.Struct, frozen=True, tag="set_policy"):
    """Order waiting requests by another policy from the next step on. No request is lost.

    The answer is a `PolicyInfo`.

    Attributes:
        name: name of a registered policy.
        options: the policy's options, by key without the component's name.
    """

    name: str
    options: dict[str, str] = {}


class PolicyInfo(msgspec.Struct, frozen=True, tag="policy"):
    """The current scheduling policy.

    Attributes:
        name: name of the requested policy.
        options: requested options.
        failure: why the engine uses first come, first served instead of the requested policy; None: the
            requested policy is in use.
        known: names of all registered policies.
    """

    name: str
    options: dict[str, str] = {}
    failure: str | None = None
    known: list[str] = []


class ViewCache(msgspec.Struct, frozen=True, tag="view_cache"):
    """Ask what the prefix cache holds. The answer is a `CacheView`.

    Attributes:
        most: maximum number of prefixes to return. Prefixes whose sharing saves the most tokens come first.
    """

    most: int = 50


class PrefixInfo(msgspec.Struct, frozen=True):
    """One prefix in the cache: a node of the radix tree.

    Attributes:
        num_tokens: length of the prefix in tokens.
        own_tokens: number of tokens that the prefix has beyond its parent node.
        num_below: number of tokens in all nodes below this one.
        hits: number of requests that used the prefix.
        age_s: seconds since the prefix was last used.
        users: number of running requests that hold this prefix, or a longer one that starts with it.
        pinned: whether a pin protects it from eviction.
        salt: `cache_salt` of the requests that may use it; "": requests without a salt.
        first_ids, last_ids: the prefix's first and last token ids, at most 64 each, to be shown as text.
        replica: number of the engine that has the prefix; None: the server has one engine.
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
    replica: int | None = None


class PinInfo(msgspec.Struct, frozen=True, tag="pin"):
    """One pinned prefix.

    Attributes:
        id: id of the pin, for `UnpinPrefix`.
        num_tokens: number of pinned tokens.
        num_cached: number of pinned tokens that are in the cache. The others are protected once they are
            computed.
        expires_in_s: seconds until the pin expires.
    """

    id: str
    num_tokens: int
    num_cached: int
    expires_in_s: float


class CacheView(msgspec.Struct, frozen=True, tag="cache"):
    """The prefix cache at one moment.

    Attributes:
        num_tokens: number of cached tokens.
        num_locked: number of cached tokens that running requests or pins hold.
        num_pinned: number of cached tokens that pins hold.
        num_nodes: number of nodes in the radix tree.
        num_evicted: number of tokens evicted since start.
        num_hit, num_asked: number of prompt tokens found in the cache, and number of prompt tokens looked up,
            since start.
        eviction: name of the eviction rule.
        prefixes: prefixes, in descending order of the number of tokens that sharing them saves.
        pins: all pins.
        num_snapshots, max_snapshots: number of stored snapshots of states, and number of slots for snapshots;
            0 for models without states.
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
    num_snapshots: int = 0
    max_snapshots: int = 0


class FlushCache(msgspec.Struct, frozen=True, tag="flush_cache"):
    """Evict every prefix that neither a running request nor a pin holds. The answer is a `CacheView`.

    Attributes:
        only_idle: whether to refuse the command while a request runs or waits. If False, prefixes that
            requests hold stay.
    """

    only_idle: bool = False


class PinPrefix(msgspec.Struct, frozen=True, tag="pin_prefix"):
    """Protect a prefix from eviction. The answer is a `PinInfo`.

    A prefix that is not in the cache is protected once a request has computed it.

    Attributes:
        token_ids: token ids of the prefix; only its whole pages are pinned.
        ttl_s: seconds until the pin expires.
        salt: `cache_salt` of the requests that may use it.
        adapter: name of the adapter of these requests; "": no adapter.
    """

    token_ids: list[int]
    ttl_s: float
    salt: str = ""
    adapter: str = ""


class UnpinPrefix(msgspec.Struct, frozen=True, tag="unpin_prefix"):
    """Remove a pin. The answer is a `PinInfo` with no time left."""

    id: str


class GetTrace(msgspec.Struct, frozen=True, tag="get_trace"):
    """Ask for the scheduler's decisions about a request. The answer is a `RequestTrace`.

    Attributes:
        id: id of the request.
    """

    id: str


class TraceEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One decision about a request, or several equal decisions in a row.

    Attributes:
        kind: one of "arrived", "waits", "admitted", "computed", "retracted", "ended".
        at_s: seconds from the request's arrival to the decision.
        until_s: seconds from the request's arrival to the last of several equal decisions.
        first_step, last_step: numbers of the first and the last engine step of these decisions.
        reason: why the request waits, was retracted, or ended.
        num_tokens: for "admitted", the tokens found in the cache; for "computed", the tokens computed in
            these steps.
        num_ahead: number of waiting requests that were ahead of this one in the policy's last ordering.
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
        arrived_at: time of arrival, in seconds since the epoch.
        num_left_out: number of entries dropped from the middle of `entries`, to bound its size.
    """

    id: str
    arrived_at: float
    prompt_tokens: int
    entries: list[TraceEntry]
    num_left_out: int = 0


class ListAdapters(msgspec.Struct, frozen=True, tag="list_adapters"):
    """Ask which adapters the engine has. The answer is an `AdapterList`."""


class LoadAdapter(msgspec.Struct, frozen=True, tag="load_adapter"):
    """Load an adapter in the background. The answer is an `AdapterList` in which it is loading.

    If an adapter of this name is loaded already, requests that come later use the new version.

    Attributes:
        name: name by which requests ask for it.
        path: folder with the adapter, on the engine's machine.
    """

    name: str
    path: str


class UnloadAdapter(msgspec.Struct, frozen=True, tag="unload_adapter"):
    """Send an adapter no new requests. Its open requests run to their end. The answer is an `AdapterList`."""

    name: str


class AdapterInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """One adapter.

    Attributes:
        name: name by which requests ask for the adapter.
        path: folder from which the adapter was read.
        version: number of its load, unique in the engine's process.
        state: whether the adapter is being loaded, takes requests, ends its last requests, or failed to load.
        rank: largest rank of its matrices.
        digest: hash of its files.
        num_requests: number of open requests that use the adapter.
        error: why the adapter could not be loaded.
    """

    name: str
    path: str
    version: int
    state: Literal["loading", "ready", "unloading", "failed"]
    rank: int = 0
    digest: str = ""
    num_requests: int = 0
    error: str = ""


class AdapterList(msgspec.Struct, frozen=True, tag="adapters"):
    """The adapters of an engine.

    Attributes:
        adapters: loaded adapters, those that are being loaded, and the last ones that could not be loaded.
        max_adapters: number of adapters that steps may use at once: the number of slots.
        max_rank: highest rank that an adapter may have; 0: no adapter fits.
        max_loaded: number of adapters that may be loaded at once, those in slots included.
    """

    adapters: list[AdapterInfo] = []
    max_adapters: int = 0
    max_rank: int = 0
    max_loaded: int = 0


class SetLogLevel(msgspec.Struct, frozen=True, tag="set_log_level"):
    """Log messages of this level and of more severe ones from now on. The answer is a `LogLevelInfo`.

    Attributes:
        level: least severe level.
    """

    level: Literal["debug", "info", "warning", "error"]


class LogLevelInfo(msgspec.Struct, frozen=True, tag="log_level"):
    """The level of the engine's log."""

    level: str


class GetMemory(msgspec.Struct, frozen=True, tag="get_memory"):
    """Ask how much memory the engine's process uses. The answer is a `MemoryInfo`."""


class MemoryInfo(msgspec.Struct, frozen=True, tag="memory"):
    """The memory of the engine's process: weights, KV cache, and everything else.

    Attributes:
        host_bytes: resident memory in bytes; 0 if the system does not report it.
        device_bytes: memory on the GPU in bytes that PyTorch has reserved; 0 on a CPU.
    """

    host_bytes: int
    device_bytes: int = 0


class Sleep(msgspec.Struct, frozen=True, tag="sleep"):
    """End the engine's process, so that its memory is free, once running requests have ended.

    The answer is the `MemoryInfo` of the process at its end. New requests are refused until `Wake`;
    deferrable requests wait for it.

    Attributes:
        timeout_s: longest time to wait for running requests, in seconds. If some still run then, nothing
            changes.
    """

    timeout_s: float


class Wake(msgspec.Struct, frozen=True, tag="wake"):
    """Start the process of an engine that sleeps. The answer is the `MemoryInfo` of the new process."""


AdapterCommand = ListAdapters | LoadAdapter | UnloadAdapter
EngineCommand = (
    GetPolicy
    | SetPolicy
    | ViewCache
    | FlushCache
    | PinPrefix
    | UnpinPrefix
    | GetTrace
    | ViewSteps
    | AdapterCommand
)
"""Commands that an engine carries out."""

Command = EngineCommand | SetLogLevel | GetMemory | Sleep | Wake | LoadWeights | ReplicaCommand
"""All commands. Those that are no `EngineCommand` concern the process of the engine, or all processes."""

Answer = (
    PolicyInfo
    | CacheView
    | PinInfo
    | RequestTrace
    | StepsView
    | AdapterList
    | LogLevelInfo
    | MemoryInfo
    | WeightsInfo
    | ReplicaInfo
    | ReplicaList
)
