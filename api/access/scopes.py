"""Checks the scopes of callers. Routes declare the scope that they need by `describe(..., scope=...)`."""

from __future__ import annotations

from collections.abc import Awaitable

from litestar.handlers.base import BaseRouteHandler
from litestar.types import ASGIApp, Receive, Scope, Send

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


class RouteScope:
    """ASGI middleware of all routes that refuses callers without the route's scope, before the body is read.

    It is no guard of Litestar, which would copy the route's handler for each request.

    Args:
        app: the route, as Litestar calls it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Handle one request.

        Raises:
            MissingScopeError: the caller lacks the route's scope.
        """
        path = scope.get("path_template") or scope["path"]
        check_scope(scope_of(scope["route_handler"]), f"{scope.get('method', '')} {path}".strip())
        return self._app(scope, receive, send)
