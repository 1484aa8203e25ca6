"""Checks the scopes of callers. Routes declare the scope that they need by `describe(..., scope=...)`."""

from __future__ import annotations

from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers.base import BaseRouteHandler

from llmfw.api.text.terms import key_scopes
from llmfw.core.base.errors import MissingScopeError
from llmfw.core.interfaces.operation import OPT, Operation
from llmfw.core.interfaces.scopes import DEFAULT_SCOPE

PATH_SCOPES = {
    "/v1/chat/completions": "generate",
    "/v1/completions": "generate",
    "/v1/embeddings": "embed",
    "/v1/responses": "responses",
}
"""Scopes of the paths that batches and plugins' routes can request. A test compares them with the routes."""


def check_scope(scope: str, what: str) -> None:
    """Raise MissingScopeError if the current caller lacks a scope. The scope "" is never missing.

    Args:
        what: operation that needs the scope, for the message.
    """
    allowed = key_scopes.get()
    if scope and allowed is not None and scope not in allowed:
        raise MissingScopeError(scope, what)


def check_path_scope(path: str) -> None:
    """Raise MissingScopeError if the current caller lacks the scope of a path in `PATH_SCOPES`."""
    check_scope(PATH_SCOPES.get(path, DEFAULT_SCOPE), path)


def scope_of(handler: BaseRouteHandler) -> str:
    """Return the scope that a route declares, or the default if it declares none."""
    declared = handler.opt.get(OPT)
    return declared.scope if isinstance(declared, Operation) else DEFAULT_SCOPE


async def guard_scope(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Litestar guard of all routes, which runs before a request's body is read.

    Litestar would call a plain function in a thread. Each request would wait twice for another thread.

    Raises:
        MissingScopeError: the caller lacks the route's scope.
    """
    method = connection.scope.get("method", "")
    path = connection.scope.get("path_template") or connection.scope["path"]
    check_scope(scope_of(handler), f"{method} {path}".strip())
