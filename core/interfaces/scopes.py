"""Scopes: names for callers' rights. A route declares the scope it needs; a principal has some or all."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

SCOPES: Mapping[str, str] = MappingProxyType(
    {
        "models": "read what is served: models, versions, settings, the OpenAPI document",
        "metrics": "read the metrics",
        "tokenize": "convert between texts and tokens",
        "generate": "generate texts: chats, completions, messages",
        "embed": "embed, score, rank and classify texts",
        "files": "upload, read and delete files",
        "batches": "create, read and cancel batches",
        "responses": "create, read and delete responses",
    }
)
"""The scopes that a principal may have: name → what it permits."""

ADMIN_SCOPE = "admin"
"""Scope of the routes below /admin, which only administrators have."""

DEFAULT_SCOPE = "generate"
"""Scope of a route that declares none."""
