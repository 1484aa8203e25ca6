"""The router `session`: all requests of a tenant to one engine.

Rendezvous hashing (Thaler and Ravishankar, 1998): when an engine is out, only its tenants move, and they return to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from llmfw.core import ReplicaView, RoutedRequest, Router


class Session(Router):
    """Chooses by a hash of tenant and cache salt; without either, the engine with the fewest queued tokens."""

    def choose(self, request: RoutedRequest, replicas: Sequence[ReplicaView]) -> ReplicaView:
        if not (request.tenant or request.cache_salt):
            return min(replicas, key=lambda replica: (replica.queued_tokens, replica.last_chosen))
        session = f"{request.tenant}\x1f{request.cache_salt}".encode("utf-8", "surrogatepass")
        return max(replicas, key=lambda replica: _weight(session, replica.index))


def _weight(session: bytes, index: int) -> bytes:
    return blake2b(session, digest_size=8, salt=index.to_bytes(8, "big")).digest()
