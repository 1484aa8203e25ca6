"""Keeps the cached prefixes of API keys apart, so that no client can find out the prompts of another key.

Without this, the number of cached tokens in a reply would reveal such a prompt, token by token. A cached
prefix belongs to the requests with its salt. So the salt of a request with a named key, or of an
authenticator's tenant, becomes "TENANT\\x1fSALT".
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec

from llmfw.core.base.request import Request, TokenEvent
from llmfw.core.client.forwarding import ForwardingEngineClient

_BETWEEN = "\x1f"  # not in the name of a tenant


def salt_of_key(tenant: str, salt: str) -> str:
    """Return the salt that the engine uses for a tenant's requests with this `cache_salt`."""
    return f"{tenant}{_BETWEEN}{salt}"


def parts_of(salt: str) -> tuple[str, str]:
    """Split a salt of the engine into the tenant ("" if there is none) and the `cache_salt`."""
    tenant, between, own = salt.partition(_BETWEEN)
    return (tenant, own) if between else ("", salt)


class KeyCaches(ForwardingEngineClient):
    """An engine client whose requests find cached prefixes of their own API key only."""

    def generate(self, request: Request) -> AsyncGenerator[TokenEvent, None]:
        """Send a request with the salt of its key, and yield its events."""
        salt = request.cache_salt
        if request.tenant_is_key:
            request = msgspec.structs.replace(request, cache_salt=salt_of_key(request.tenant, salt))
        elif _BETWEEN in salt:  # must not be mistaken for a key's salt
            request = msgspec.structs.replace(request, cache_salt=salt_of_key("", salt))
        return super().generate(request)
