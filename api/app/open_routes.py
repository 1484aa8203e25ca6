"""Finds the routes that need no key, and the home page for browsers. Checks that these routes may be open."""

from __future__ import annotations

from typing import Any

from litestar import Litestar
from litestar.routes import HTTPRoute

from llmfw.api.access.scopes import scope_of
from llmfw.api.admin.access import PREFIXES, first_part
from llmfw.core.base.errors import ComponentError
from llmfw.core.interfaces.operation import OPT, Operation

READS = {"GET", "HEAD", "OPTIONS"}
"""Methods of routes that may be open to anyone."""


def wrongly_open(route: Any) -> str | None:
    """Return why a plugin's route may not be open to callers without a key; None if it may.

    Keys are checked by the path, before the route is known. So the path must have no parameters, and no other
    method of the path may need a key.
    """
    if not isinstance(route, HTTPRoute) or not set(route.methods) <= READS:
        return f"{route.path} declares no scope, so it needs no key; only GET routes may be without a key"
    if "{" in route.path:
        return f"{route.path} declares no scope, so it needs no key; a path with parameters must need one"
    if first_part(route.path) in PREFIXES:
        return (
            f"{route.path} declares no scope; routes below /{first_part(route.path)} are for administrators"
        )
    return None


def open_paths(app: Litestar) -> frozenset[str]:
    """Return the paths whose routes all need no key."""
    return frozenset(
        route.path
        for route in app.routes
        if isinstance(route, HTTPRoute) and not any(map(scope_of, _declared(route)))
    )


def home_of(app: Litestar) -> str | None:
    """Return the path of the route that browsers get at `/`; None if there is none.

    Raises:
        ComponentError: several routes declare themselves the home page, or a route that needs a key does.
    """
    found = [
        (route.path, operation)
        for route in app.routes
        if isinstance(route, HTTPRoute)
        for handler in _declared(route)
        if isinstance(operation := handler.opt.get(OPT), Operation) and operation.is_home
    ]
    if len(found) > 1:
        paths = " and ".join(sorted(path for path, _ in found))
        raise ComponentError(
            f"{paths} are both declared as the home page; leave out a plugin by --no-plugin NAME"
        )
    for path, operation in found:
        if operation.scope:
            raise ComponentError(
                f'{path} is declared as the home page, and needs a key; declare it by describe(..., scope="", '
                "is_home=True)"
            )
        return path
    return None


def _declared(route: HTTPRoute) -> list[Any]:
    """Return a route's handlers, except the handlers that Litestar adds for OPTIONS."""
    return [handler for handler in route.route_handlers if handler.http_methods != {"OPTIONS"}]
