"""An immutable table of API keys: digest → tenant. A change of the keys replaces the whole table."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable

from llmfw.core.base.errors import ConfigError

from .key_text import MAX_KEY

ADMIN = "(admin)"
"""The tenant of the admin key.

No other key can have this name, because tenants' names have no parentheses.
"""


class Keys:
    """A table of API keys by digest.

    Finding a key costs one SHA-256 and one dictionary lookup, however many keys there are. The lookup need
    not take constant time: it compares digests, and clients cannot choose the first bytes of a digest.

    Args:
        users: pairs of tenant and digest. A tenant may have several keys. The tenant of a key without a name
            is named after the key's digest; if the server has only this key, the tenant is "".
        admins: digests of the admin keys.

    Attributes:
        tenants: tenants of all keys except the admin keys.

    Raises:
        ConfigError: two tenants have the same key, or a tenant has an admin key.
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
        """Return the tenant of a key; None if the key is not valid."""
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
