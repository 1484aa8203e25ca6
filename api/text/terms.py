"""On which terms a request is served beside others: for whom it is, how long it may take, whose cache it shares.

Whose API key a connection brought is known to the middleware alone, which notes it here; where no key has a name, a
client says itself for whom it asks.
"""

from __future__ import annotations

from contextvars import ContextVar

import msgspec

from llmfw.api.schemas.common import GenerationRequest
from llmfw.api.schemas.native import GenerateRequest

MAX_TENANT = 256  # characters of a client's own name for its user: each is a key in the engine's books

key_name: ContextVar[str] = ContextVar("key_name", default="")
"""The name of the API key of the connection that is being handled; empty: it has none."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How a request is served beside others. The fields are those of `Request`."""

    tenant: str = ""
    tenant_is_key: bool = False
    cache_salt: str = ""
    timeout_s: float | None = None
    tell_wait: bool = False


def terms_of(body: GenerationRequest | GenerateRequest) -> Terms:
    """Return the terms that a body asks for."""
    users = (body.user, body.safety_identifier) if isinstance(body, GenerationRequest) else ()
    return Terms(
        tenant=tenant_of(*users),
        tenant_is_key=bool(key_name.get()),
        cache_salt=body.cache_salt or "",
        timeout_s=body.timeout,
        tell_wait=bool(body.stream),
    )


def tenant_of(*users: str | None) -> str:
    """Return the tenant of a request.

    Args:
        users: what its body says of the user, where several fields may; the first one counts.
    """
    return key_name.get() or next((user[:MAX_TENANT] for user in users if user), "")
