"""The terms of a request among others: its tenant, its deadline, and the cache that it shares.

Only the middleware knows which API key a connection used; it stores the key's name here. If no key has a name, a client
names its tenant itself.
"""

from __future__ import annotations

from contextvars import ContextVar

import msgspec

from llmfw.api.schemas.common import GenerationRequest
from llmfw.api.schemas.native import GenerateRequest

MAX_TENANT = 256  # characters of a client's own name for its user: the engine keeps an entry for each name

key_name: ContextVar[str] = ContextVar("key_name", default="")
"""The name of the API key of the current connection; empty: no name."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """The terms of a request among others. The fields are the fields of `Request`."""

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
        users: names of the user in several fields of the body; the first one counts.
    """
    return key_name.get() or next((user[:MAX_TENANT] for user in users if user), "")
