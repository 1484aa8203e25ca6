"""Routers: functions that choose a request's replica from the replicas' state when the request arrives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .replica import Replica
from .tokens import TokenIds
from .trace import TraceRequest

Router = Callable[[Sequence[Replica], TraceRequest, TokenIds], Replica]

MOST_LOAD = 1.25
"""`longest_prefix` skips replicas with a load above this multiple of the mean, plus the prompt's length."""


def round_robin(replicas: Sequence[Replica], request: TraceRequest, prompt: TokenIds) -> Replica:
    """Return the replicas in turn, by the request's number."""
    return replicas[request.number % len(replicas)]


def least_load(replicas: Sequence[Replica], request: TraceRequest, prompt: TokenIds) -> Replica:
    """Return the replica with the fewest tokens in waiting and running requests."""
    return min(replicas, key=lambda replica: replica.num_tokens)


def longest_prefix(replicas: Sequence[Replica], request: TraceRequest, prompt: TokenIds) -> Replica:
    """Return the replica with the longest cached prefix of the prompt; if several have it, the least loaded.

    Skips replicas with more than `MOST_LOAD * mean + length` tokens, where `mean` is the mean number of
    tokens of a replica's waiting and running requests, and `length` is the length of this prompt.
    """
    mean = sum(replica.num_tokens for replica in replicas) / len(replicas)
    most = MOST_LOAD * mean + request.prompt_len
    return min(
        (replica for replica in replicas if replica.num_tokens <= most),
        key=lambda replica: (-replica.num_cached(prompt, request.salt), replica.num_tokens),
    )


ROUTERS: dict[str, Router] = {"round-robin": round_robin, "load": least_load, "prefix": longest_prefix}
