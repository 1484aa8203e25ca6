"""Keeps the cached prefixes of API keys apart, so that no key finds out what another one has sent.

The number of cached tokens in a reply would tell, token by token. A cached prefix belongs to the requests with its
salt. So the salt of a request with a named key, or of an authenticator's tenant, becomes "TENANT\\x1fSALT".
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec

from llmfw.core.base.request import Request, TokenEvent
from llmfw.core.client.forwarding import ForwardingEngineClient

_BETWEEN = "\x1f"  # not in the name of a tenant


def salt_of_key(tenant: str, salt: str) -> str:
    """Return the salt in the engine of a tenant's requests with this `cache_salt`."""
    return f"{tenant}{_BETWEEN}{salt}"


def parts_of(salt: str) -> tuple[str, str]:
    """Return the tenant and the `cache_salt` of a salt in the engine; "" for no tenant."""
    tenant, between, own = salt.partition(_BETWEEN)
    return (tenant, own) if between else ("", salt)


class KeyCaches(ForwardingEngineClient):
    """An engine client whose requests find cached prefixes of their own API key only."""

    def generate(self, request: Request) -> AsyncGenerator[TokenEvent, None]:
        """Send a request with the salt of its key, and yield its events."""
        salt = request.cache_salt
        if request.tenant_is_key:
            request = msgspec.structs.replace(request, cache_salt=salt_of_key(request.tenant, salt))
        elif _BETWEEN in salt:  # must not be taken for that of a key
            request = msgspec.structs.replace(request, cache_salt=salt_of_key("", salt))
        return super().generate(request)
