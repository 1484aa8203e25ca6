"""The API keys in force at one moment: digest → tenant. Immutable, so that a change swaps all of it at once."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable

from llmfw.core.base.errors import ConfigError

from .key_text import MAX_KEY

ADMIN = "(admin)"
"""The tenant of the admin key. No other key can have this name: it has parentheses."""


class Keys:
    """A table of keys.

    A request costs one SHA-256 and one dictionary lookup, however many keys there are. The lookup is not in constant
    time, and need not be: it compares digests, and no client can choose a key by the first bytes of its digest.

    Args:
        users: tenant and digest. A tenant may have several keys. A key without a name is a tenant of its own, named
            after its digest; if it is the only key, its tenant is "", as without keys.
        admins: digests of the admin's keys.

    Attributes:
        tenants: of all keys but the admin's.

    Raises:
        ConfigError: two tenants have the same key, or one has the admin's.
    """

    def __init__(self, users: Collection[tuple[str, bytes]], admins: Iterable[bytes] = ()) -> None:
        is_alone = len({digest for _, digest in users}) == 1
        self._tenants: dict[bytes, str] = {}
        for name, digest in users:
            self._add(digest, name or ("" if is_alone else f"key-{digest.hex()[:8]}"))
        self.tenants = frozenset(self._tenants.values())
        for digest in admins:
            self._add(digest, ADMIN)

    def tenant_of(self, key: bytes) -> str | None:
        """Return the tenant that a key belongs to; None for a wrong key."""
        if len(key) > MAX_KEY:
            return None
        return self._tenants.get(hashlib.sha256(key).digest())

    def _add(self, digest: bytes, tenant: str) -> None:
        other = self._tenants.setdefault(digest, tenant)
        if other != tenant:
            raise ConfigError(
                f"{_words(other)} and {_words(tenant)} have the same API key; give each a key of its own"
            )


def _words(tenant: str) -> str:
    return "the administrator" if tenant == ADMIN else f"tenant {tenant!r}"
