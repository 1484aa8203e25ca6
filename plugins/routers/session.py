"""The router `session`: sends all requests of a tenant to one engine.

Uses rendezvous hashing (Thaler and Ravishankar, 1998): if an engine fails, only its tenants move to other
engines. They return when the engine is back.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from llmfw.core import ReplicaView, RoutedRequest, Router


class Session(Router):
    """Chooses by a hash of tenant and cache salt; if both are missing, by the fewest queued tokens."""

    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> ReplicaView:
        if not (request.tenant or request.cache_salt):
            return min(replicas, key=lambda replica: (replica.queued_tokens, replica.last_chosen))
        session = f"{request.tenant}\x1f{request.cache_salt}".encode("utf-8", "surrogatepass")
        return max(replicas, key=lambda replica: _weight(session, replica.index))


def _weight(session: bytes, index: int) -> bytes:
    return blake2b(session, digest_size=8, salt=index.to_bytes(8, "big")).digest()
