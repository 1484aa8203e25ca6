"""Imports the routes of plugins, and wraps them so that their errors are attributed to the plugin."""

from __future__ import annotations

import importlib
import logging
import os
import re
from collections.abc import Iterable, Iterator
from operator import attrgetter
from types import FunctionType
from typing import Any

from litestar import Request, Response, Router
from litestar.exceptions import HTTPException, ImproperlyConfiguredException
from litestar.middleware import DefineMiddleware
from litestar.routes import HTTPRoute

from llmfw.api.access.scopes import scope_of
from llmfw.api.http.errors import error_response, handle, route_of
from llmfw.core.base.described import described, message_of
from llmfw.core.base.errors import ComponentError, LLMFWError, UnreadableRequestError
from llmfw.core.interfaces.scopes import SCOPES
from llmfw.core.plugin.calls import ComponentLedger
from llmfw.core.plugin.containment import contained, naming_ctrl_c, raise_if_process_ends
from llmfw.core.plugin.plugins import package_of
from llmfw.core.plugin.registry import Entry

from .contained_stream import contain_streams
from .open_routes import wrongly_open
from .route_guard import RouteGuard

logger = logging.getLogger(__name__)

_PARAMETER = re.compile(r"\{[^}]*\}")


def usable_routes(routes: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the routes that can be imported; log a warning for each of the others.

    Args:
        routes: pairs of plugin and import path "package.module:name".

    Raises:
        ComponentError: a route cannot be imported, and LLMFW_STRICT_PLUGINS is set.
    """
    usable = []
    for plugin, path in routes:
        try:
            import_route(plugin, path)
        except ComponentError as error:
            if os.environ.get("LLMFW_STRICT_PLUGINS", "0") not in ("", "0"):
                raise
            logger.warning("%s; it is not served", " ".join(message_of(error).split()))
        else:
            usable.append((plugin, path))
    return usable


def plugin_route(plugin: str, path: str, ledger: ComponentLedger) -> Router:
    """Return a router with a plugin's route handler, router or controller.

    Args:
        path: import path "package.module:name".
        ledger: ledger that counts the route's failures.

    Raises:
        ComponentError: the path cannot be imported, is not a route handler, router or controller, or a route
            declares an unknown scope, or lacks a scope that it needs.
    """
    found = import_route(plugin, path)

    def log(request: Request[Any, Any, Any], error: Exception) -> Exception:
        return ledger.of(route_entry(plugin, path)).failed(error, route_of(request))

    def fail(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
        return error_response(log(request, error))

    def failed(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
        error = contained(error)
        raised = list(_leaves(error))
        return handle(request, raised[0]) if all(map(_is_meant, raised)) else fail(request, error)

    router = Router(
        "/",
        route_handlers=[found],
        middleware=[DefineMiddleware(RouteGuard, fail=failed, log=log)],
        # Litestar raises ImproperlyConfiguredException for a body that cannot be serialized.
        exception_handlers={HTTPException: handle, ImproperlyConfiguredException: fail, Exception: failed},
    )
    contain_streams(router)
    if wrong := _wrong_scope(router):
        raise ComponentError(f"{route_entry(plugin, path)}: {wrong}")
    return router


def _leaves(error: Exception) -> Iterator[Exception]:
    """Yield the exceptions of a group, such as that of an `asyncio.TaskGroup`; of any other exception, itself."""
    if isinstance(error, ExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def _is_meant(error: Exception) -> bool:
    """Return whether an exception is a route's answer to its client, and no failure of the route."""
    return isinstance(error, LLMFWError | HTTPException) and not isinstance(error, UnreadableRequestError)


def _wrong_scope(router: Router) -> str | None:
    """Return the error of a route that has an unknown scope or lacks a needed one; None: no error."""
    for route in router.routes:
        handlers = route.route_handlers if isinstance(route, HTTPRoute) else [route.route_handler]
        for scope in map(scope_of, handlers):
            if not scope and (wrong := wrongly_open(route)):
                return wrong
            if scope and scope not in SCOPES:
                return f"{route.path} declares the scope {scope!r}; it must be one of {', '.join(SCOPES)}"
    return None


def refuse_shared_paths(routes: Iterable[tuple[str, str]]) -> None:
    """Check that the routes of plugins have different paths. Needs no application, hence no model.

    Args:
        routes: pairs of plugin and import path "package.module:name".

    Raises:
        ComponentError: a route cannot be imported, or has a method and path of an earlier route.
    """
    owners: dict[tuple[str, str], str] = {}
    for plugin, path in routes:
        own = dict(_shapes(Router("/", route_handlers=[import_route(plugin, path)])))
        if taken := [f"{shown} by {owners[shape]}" for shape, shown in own.items() if shape in owners]:
            raise ComponentError(
                f"{route_entry(plugin, path)} is at a path that is taken: {', '.join(sorted(taken))}; change the "
                "path, or leave out one of the plugins"
            )
        owners |= dict.fromkeys(own, f"route {path!r} of plugin {plugin!r}")


def shared_paths(first: Router, second: Router) -> list[str]:
    """Return the methods and paths of `second` that `first` also has. Names of parameters may differ.

    Litestar refuses equal paths, but silently lets `/files/{a:str}` replace `/files/{b:str}`.
    """
    taken = {shape for shape, _ in _shapes(first)}
    return sorted(shown for shape, shown in _shapes(second) if shape in taken)


def _shapes(router: Router) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield for each route: method and path without parameter names, and "METHOD PATH" for messages."""
    for route in router.routes:
        for method in route.methods if isinstance(route, HTTPRoute) else ():
            if method != "OPTIONS":
                yield (method, _PARAMETER.sub("{}", route.path)), f"{method} {route.path}"


def import_route(plugin: str, path: str) -> Any:
    """Import the route handler, router or controller that a plugin registered.

    Raises:
        ComponentError: the path cannot be imported, or is not a route handler, router or controller.
    """
    module, _, name = path.partition(":")
    with naming_ctrl_c():
        try:
            found = attrgetter(name)(importlib.import_module(module))
        except BaseException as error:  # a plugin's module may raise anything
            raise_if_process_ends(error)
            raise ComponentError(
                f"{route_entry(plugin, path)} cannot be imported: {described(error)}"
            ) from error
    try:
        Router("/", route_handlers=[found])
    except ImproperlyConfiguredException as error:
        if isinstance(found, FunctionType):
            reason = "is a function that none of litestar's get, post, … decorates"
        else:
            reason = f"is not a Litestar route handler, router or controller: {error.detail}"
        raise ComponentError(f"{route_entry(plugin, path)} {reason}") from error
    return found


def route_entry(plugin: str, path: str) -> Entry:
    """Return a registry entry for a plugin's route, which names it in errors and in the ledger of calls.

    Searches all installed packages for the plugin's package, so call this only for a route that has failed.
    """
    return Entry("route", path, path, plugin, *package_of(plugin))
