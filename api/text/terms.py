"""Terms under which a request shares the engine with others: its tenant, timeout, cache salt, plugins' fields.

The middleware that checks API keys stores the name of the connection's key here. If the key has no name, the
request's own user fields name its tenant.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import msgspec

from llmfw.api.schemas.common import GenerationRequest
from llmfw.api.schemas.native import GenerateRequest

from .request_fields import field_values

MAX_TENANT = 256  # characters of a tenant's name from the request; the engine keeps an entry for each name

key_name: ContextVar[str] = ContextVar("key_name", default="")
"""Name of the API key of the current connection; empty if it has none."""

key_scopes: ContextVar[frozenset[str] | None] = ContextVar("key_scopes", default=None)
"""Scopes of the client of the current connection; None: all."""


@contextmanager
def serving_client(name: str, scopes: frozenset[str] | None) -> Generator[None]:
    """Set `key_name` and `key_scopes` until the block ends, since one context may serve several connections."""
    names, allowed = key_name.set(name), key_scopes.set(scopes)
    try:
        yield
    finally:
        key_scopes.reset(allowed)
        key_name.reset(names)


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """Terms under which a request shares the engine with others. The fields are those of `Request`.

    Attributes:
        model: the model that the request names: the served one or an adapter; None: the served one.
    """

    tenant: str = ""
    tenant_is_key: bool = False
    cache_salt: str = ""
    timeout_s: float | None = None
    tell_wait: bool = False
    fields: dict[str, Any] = {}
    model: str | None = None


def terms_of(body: GenerationRequest | GenerateRequest) -> Terms:
    """Return the terms of a request body; the tenant is the API key's name, if it has one.

    Raises:
        RequestError, ComponentFailedError: as in `field_values`.
    """
    users = (body.user, body.safety_identifier) if isinstance(body, GenerationRequest) else ()
    return Terms(
        tenant=tenant_of(*users),
        tenant_is_key=bool(key_name.get()),
        cache_salt=body.cache_salt or "",
        timeout_s=body.timeout,
        tell_wait=bool(body.stream),
        fields=field_values(body),
        model=body.model,
    )


def tenant_of(*users: str | None) -> str:
    """Return the tenant of a request.

    Args:
        users: values of the request's user fields. If the API key has no name, the first one that is set is
            used.
    """
    return key_name.get() or next((user[:MAX_TENANT] for user in users if user), "")
