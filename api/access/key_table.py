"""An immutable table of API keys: digest → client. A change of the keys replaces the whole table."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable

import msgspec

from llmfw.core.base.errors import ConfigError
from llmfw.core.interfaces.tenant_limits import TenantLimits

from .key_text import MAX_KEY
from .principals import Known

ADMIN = "(admin)"
"""The tenant of the admin key.

No other key can have this name, because tenants' names have no parentheses.
"""


class UserKey(msgspec.Struct, frozen=True):
    """A key of a tenant.

    Attributes:
        tenant: name of the tenant; "" for a key without a name.
        digest: SHA-256 of the key.
        scopes: names of `SCOPES`: what the key may do; None: everything.
        limits: limits of the tenant; None: only those of the server.
    """

    tenant: str
    digest: bytes
    scopes: frozenset[str] | None = None
    limits: TenantLimits | None = None


class Keys:
    """A table of API keys by digest.

    Finding a key costs one SHA-256 and one dictionary lookup, however many keys there are. The lookup need
    not take constant time: it compares digests, and clients cannot choose the first bytes of a digest.

    Args:
        users: keys of tenants. A tenant may have several, each with its own scopes, but with the same limits. The tenant of a key without
            a name is named after the key's digest; if the server has only this key, the tenant is "".
        admins: digests of the admin keys.

    Attributes:
        tenants: tenants of all keys except the admin keys.
        has_scopes: whether the scopes of some key are limited.

    Raises:
        ConfigError: two tenants have the same key, a tenant has an admin key, a key has different scopes in
            different places, or the keys of a tenant have different limits.
    """

    def __init__(self, users: Collection[UserKey], admins: Iterable[bytes] = ()) -> None:
        is_alone = len({key.digest for key in users}) == 1
        self._clients: dict[bytes, Known] = {}
        self._limits: dict[str, TenantLimits | None] = {}
        for key in users:
            tenant = key.tenant or ("" if is_alone else f"key-{key.digest.hex()[:8]}")
            self._add(key.digest, Known(tenant, key.scopes, key.limits))
            self._limit(tenant, key.limits)
        self.tenants = frozenset(client.tenant for client in self._clients.values())
        self.has_scopes = any(client.scopes is not None for client in self._clients.values())
        for digest in admins:
            self._add(digest, Known(ADMIN))

    def client_of(self, key: bytes) -> Known | None:
        """Return the client whose key this is; None if the key is not valid."""
        if len(key) > MAX_KEY:
            return None
        return self._clients.get(hashlib.sha256(key).digest())

    def tenant_of(self, key: bytes) -> str | None:
        """Return the tenant of a key; None if the key is not valid."""
        client = self.client_of(key)
        return None if client is None else client.tenant

    def limits_of(self, tenant: str) -> TenantLimits | None:
        """Return the limits of a tenant; None if the tenant has no limits or no key."""
        return self._limits.get(tenant)

    def _limit(self, tenant: str, limits: TenantLimits | None) -> None:
        if self._limits.setdefault(tenant, limits) != limits:
            raise ConfigError(
                f"the API keys of {_words(tenant)} have different limits, which are the tenant's; write the same ones "
                "after each of its keys"
            )

    def _add(self, digest: bytes, client: Known) -> None:
        other = self._clients.setdefault(digest, client)
        if other.tenant != client.tenant:
            raise ConfigError(
                f"{_words(other.tenant)} and {_words(client.tenant)} have the same API key; give each a key of its "
                "own"
            )
        if other.scopes != client.scopes:
            raise ConfigError(
                f"{_words(client.tenant)} has one API key twice with different scopes; list it once, or give it two "
                "keys"
            )


def _words(tenant: str) -> str:
    return "the administrator" if tenant == ADMIN else f"tenant {tenant!r}"
