"""Keeps the answers of authenticators until the principals expire."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from llmfw.core.interfaces.authenticator import Credentials
from llmfw.core.interfaces.tenant_limits import TenantLimits

MAX_KEPT = 10_000
"""Maximum number of kept answers; the one that was used least recently leaves first."""


class Known(msgspec.Struct, frozen=True):
    """A client that the server knows.

    Attributes:
        tenant: the server's name for it (`terms.key_name`).
        scopes: names of `SCOPES`: what it may do; None: everything.
        limits: limits of the tenant; None: only those of the server.
    """

    tenant: str
    scopes: frozenset[str] | None = None
    limits: TenantLimits | None = None


class _Kept(msgspec.Struct, frozen=True):
    client: Known
    expires_at: float  # wall-clock time
    ends: float  # monotonic time, in case the wall clock is set back


class KeptPrincipals:
    """Clients by the digest of the credentials, until they expire. The credentials are not kept.

    Args:
        now: wall clock, in seconds since the epoch.
        clock: monotonic clock.
    """

    def __init__(
        self, now: Callable[[], float] = time.time, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._now, self._clock = now, clock
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()

    def find(self, digest: bytes) -> Known | None:
        """Return the client of credentials; None if they are unknown or have expired."""
        found = self._kept.get(digest)
        if found is None:
            return None
        if self._now() >= found.expires_at or self._clock() >= found.ends:
            del self._kept[digest]
            return None
        self._kept.move_to_end(digest)
        return found.client

    def keep(self, digest: bytes, client: Known, expires_at: float) -> None:
        """Keep the client of credentials until a time in seconds since the epoch."""
        self._kept[digest] = _Kept(client, expires_at, self._clock() + expires_at - self._now())
        self._kept.move_to_end(digest)
        if len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)

    def is_past(self, expires_at: float) -> bool:
        """Return whether a time has passed."""
        return self._now() >= expires_at


def digest_of(credentials: Credentials) -> bytes:
    """Return a digest of credentials; different credentials have different digests."""
    return hashlib.sha256(msgspec.msgpack.encode(credentials)).digest()
