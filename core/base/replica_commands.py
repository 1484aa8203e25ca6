"""Commands about the engines of a server with several engines, and the answers.

The API process carries out these commands itself, and sends them to no engine.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from .errors import RequestError


class ListReplicas(msgspec.Struct, frozen=True, tag="list_replicas"):
    """Ask for the state of all engines. The answer is a `ReplicaList`."""


class DrainReplica(msgspec.Struct, frozen=True, tag="drain_replica"):
    """Send an engine no new requests. Its current requests run to their end. The answer is a `ReplicaInfo`.

    Attributes:
        index: number of the engine.
    """

    index: int


class UndrainReplica(msgspec.Struct, frozen=True, tag="undrain_replica"):
    """Send an engine requests again. The answer is a `ReplicaInfo`.

    Attributes:
        index: number of the engine.
    """

    index: int


class AddReplica(msgspec.Struct, frozen=True, tag="add_replica"):
    """Start another engine, and use it once it is ready. The answer, sent then, is a `ReplicaInfo`."""


class RemoveReplica(msgspec.Struct, frozen=True, tag="remove_replica"):
    """Drain an engine, and end its process. The answer, sent afterwards, is a `ReplicaInfo`.

    Attributes:
        index: number of the engine.
        timeout_s: longest time to wait for its requests, in seconds. Another engine then continues those that
            still run. If the server does not allow requests to continue elsewhere, nothing changes.
    """

    index: int
    timeout_s: float


class ReplicaInfo(msgspec.Struct, frozen=True, tag="replica", omit_defaults=True, kw_only=True):
    """The state of one engine.

    Attributes:
        index: its number.
        state: "starting": it is being added; "running"; "draining": it gets no new requests, and still has
            some; "drained": it has no requests left; "restarting": it has died or hung, and is being started
            again; "failed": it is given up; "asleep"; "removed".
        num_waiting: number of its requests without output.
        num_running: number of its requests with output.
        queued_tokens: number of prompt tokens still to be computed for its waiting requests.
        queued_s: estimated seconds to compute these tokens; missing: the engine's speed has not been
            measured.
        tokens_per_s: prompt tokens that it computes per second, by recent measurements; 0: not measured, or
            no router asks for it.
        cached_tokens: number of tokens in its prefix cache, by its last report; 0: no reports, because no
            router asks for them.
        num_restarts: number of times that it was restarted.
        outage: why it takes no requests now; missing: it takes requests.
    """

    index: int
    state: Literal["starting", "running", "draining", "drained", "restarting", "failed", "asleep", "removed"]
    num_waiting: int = 0
    num_running: int = 0
    queued_tokens: int = 0
    queued_s: float | None = None
    tokens_per_s: float = 0.0
    cached_tokens: int = 0
    num_restarts: int = 0
    outage: str | None = None


class ReplicaList(msgspec.Struct, frozen=True, tag="replicas"):
    """The state of all engines.

    Attributes:
        replicas: the engines, by ascending number.
        max_replicas: maximum number of engines (`--max-replicas`).
    """

    replicas: list[ReplicaInfo]
    max_replicas: int


ReplicaCommand = ListReplicas | DrainReplica | UndrainReplica | AddReplica | RemoveReplica


def one_engine() -> RequestError:
    """Return the error for these commands on a server that has only one engine."""
    return RequestError(
        "this server has one engine; start it with --replicas or --max-replicas", code="unsupported_operation"
    )
