"""Which replica a request goes to: plain functions of the replicas as they are when it comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .replica import Replica
from .tokens import TokenIds
from .trace import TraceRequest

Router = Callable[[Sequence[Replica], TraceRequest, TokenIds], Replica]

MOST_LOAD = 1.25
"""A replica with more than so many times the mean load (and one prompt) is not chosen for what it has cached."""


def round_robin(replicas: Sequence[Replica], request: TraceRequest, prompt: TokenIds) -> Replica:
    """Return one after the other."""
    return replicas[request.number % len(replicas)]


def least_load(replicas: Sequence[Replica], request: TraceRequest, prompt: TokenIds) -> Replica:
    """Return the one with the fewest tokens, waiting and running."""
    return min(replicas, key=lambda replica: replica.num_tokens)


def longest_prefix(replicas: Sequence[Replica], request: TraceRequest, prompt: TokenIds) -> Replica:
    """Return the one that has most of the prompt cached, and of these the one with the least load.

    Those with more than `MOST_LOAD` times the mean load and one such prompt are left out.
    """
    mean = sum(replica.num_tokens for replica in replicas) / len(replicas)
    most = MOST_LOAD * mean + request.prompt_len
    return min(
        (replica for replica in replicas if replica.num_tokens <= most),
        key=lambda replica: (-replica.num_cached(prompt, request.salt), replica.num_tokens),
    )


ROUTERS: dict[str, Router] = {"round-robin": round_robin, "load": least_load, "prefix": longest_prefix}
