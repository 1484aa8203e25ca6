"""Builds the OpenAPI document from the server's routes and the Structs that they read and write.

Litestar's own generator does not know the bodies' types, because the route handlers decode bodies themselves.
A plugin's route without a description (`operation.describe`) is listed with its path only. A route with
Litestar's `include_in_schema=False` is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from litestar import Litestar
from litestar.handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute

from llmfw.api.schemas.errors import ErrorBody
from llmfw.core.base.about import version
from llmfw.core.interfaces.operation import OPT, Operation

_REFERENCE = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"{(?P<name>\w+)}")


def openapi_document(app: Litestar, *, needs_key: bool, root_path: str = "") -> dict[str, Any]:
    """Return the OpenAPI document of an application's routes.

    Args:
        app: application with all routes registered.
        needs_key: whether clients must send an API key. Each route then names the scope that it needs.
        root_path: path below which clients reach the routes; "": none.
    """
    found = list(_operations(app))
    types = [kind for _, _, operation in found for kind in _types_of(operation)]
    (_, *schemas), components = msgspec.json.schema_components([ErrorBody, *types], ref_template=_REFERENCE)
    schema_of = dict(zip(map(id, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for path, method, operation in found:
        entry = _entry(path, operation, schema_of)
        if needs_key:
            entry["security"] = [{"key": [operation.scope]}] if operation.scope else []
        paths.setdefault(path, {})[method] = entry
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "llmfw", "version": version()},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": components},
    }
    if root_path:
        document["servers"] = [{"url": root_path}]
    if needs_key:
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"key": []}]
    return document


def _operations(app: Litestar) -> Iterator[tuple[str, str, Operation]]:
    """Yield the path, the method and the description of each route."""
    for route in app.routes:
        if not isinstance(route, HTTPRoute):
            continue
        for handler in route.route_handlers:
            if not handler.resolve_include_in_schema():
                continue
            for method in sorted(handler.http_methods):
                if method != "OPTIONS":
                    yield route.path_format, method.lower(), _operation_of(handler)


def _operation_of(handler: HTTPRouteHandler) -> Operation:
    said = handler.opt.get(OPT)
    return said if isinstance(said, Operation) else Operation(summary=handler.handler_name)


def _types_of(operation: Operation) -> Iterable[Any]:
    return (
        kind
        for kind in (operation.body, operation.reply, operation.chunk, *operation.query.values())
        if kind is not None
    )


def _entry(path: str, operation: Operation, schema_of: dict[int, Any]) -> dict[str, Any]:
    replies: dict[str, Any] = {}
    if operation.reply is not None:
        replies[operation.media_type] = {"schema": schema_of[id(operation.reply)]}
    if operation.chunk is not None:
        replies["text/event-stream"] = {"schema": schema_of[id(operation.chunk)]}
    entry: dict[str, Any] = {
        "summary": operation.summary,
        "responses": {
            str(operation.status): {"description": "The reply.", **({"content": replies} if replies else {})},
            "4XX": _error("The request is wrong: the message says what is, and what would be right."),
            "5XX": _error("The server failed."),
        },
    }
    if operation.body is not None:
        content = {operation.body_media_type: {"schema": schema_of[id(operation.body)]}}
        entry["requestBody"] = {"required": True, "content": content}
    if parameters := list(_parameters(path, operation, schema_of)):
        entry["parameters"] = parameters
    return entry


def _parameters(path: str, operation: Operation, schema_of: dict[int, Any]) -> Iterator[dict[str, Any]]:
    for name in _PARAMETER.findall(path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
    for name, kind in operation.query.items():
        yield {"name": name, "in": "query", "required": False, "schema": schema_of[id(kind)]}


def _error(description: str) -> dict[str, Any]:
    schema = {"$ref": _REFERENCE.format(name=ErrorBody.__name__)}
    return {"description": description, "content": {"application/json": {"schema": schema}}}
