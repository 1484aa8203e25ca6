"""What the HTTP API promises, as plain data: its routes, and the fields that each reads and writes.

Taken from the server's own OpenAPI document. Fields stand with their path, as in `messages[].content[].text`; the names of
schemas are nobody's business. Types of values are not compared, nor which values a field may have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx

from llmfw.api.checks.route_check import idle_app
from llmfw.core.base.config import ServerConfig
from llmfw.core.plugin.registry import Registry

DEEPEST = 8
"""Fields below so many others are left out: schemas may hold themselves, as a filter of filters does."""

Fields = dict[str, bool]
"""Path of a field → whether it has to be there wherever what it stands in is."""


def routes(registry: Registry) -> dict[str, Any]:
    """Return "METHOD path" → what the API's own routes read and write.

    Args:
        registry: has the stores that an application cannot do without.
    """
    document = asyncio.run(_document(registry))
    schemas = document["components"]["schemas"]
    return {
        f"{method.upper()} {path}": _described(entry, schemas)
        for path, methods in document["paths"].items()
        for method, entry in methods.items()
    }


async def _document(registry: Registry) -> Any:
    async with idle_app(ServerConfig(served_model_name="none"), registry) as app:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            return (await http.get("/openapi.json")).raise_for_status().json()


def _described(entry: Mapping[str, Any], schemas: Mapping[str, Any]) -> dict[str, Any]:
    replies = {status: reply["content"] for status, reply in entry["responses"].items() if "content" in reply}
    [(status, reply)] = [found for found in replies.items() if found[0].isdigit()] or [("", {})]
    events = {"text/event-stream": "event"}
    return {
        "status": status,
        "query": [found["name"] for found in entry.get("parameters", ()) if found["in"] == "query"],
        "body": _of_all(entry.get("requestBody", {}).get("content", {}), schemas),
        "reply": _of_all({kind: of for kind, of in reply.items() if kind not in events}, schemas),
        "event": _of_all({kind: of for kind, of in reply.items() if kind in events}, schemas),
    }


def _of_all(content: Mapping[str, Any], schemas: Mapping[str, Any]) -> Fields:
    return dict(sorted(_any_of([_fields(of["schema"], schemas, "") for of in content.values()]).items()))


def _fields(schema: Mapping[str, Any], schemas: Mapping[str, Any], path: str) -> Fields:
    """Return the fields of a schema, and those below."""
    if path.count(".") >= DEEPEST:
        return {}
    if "$ref" in schema:
        return _fields(schemas[schema["$ref"].rpartition("/")[2]], schemas, path)
    if alternatives := [*schema.get("anyOf", ()), *schema.get("oneOf", ())]:
        objects = [each for each in alternatives if each.get("type") in (None, "object", "array")]
        return _any_of([_fields(each, schemas, path) for each in objects])
    if isinstance(schema.get("items"), Mapping):
        return _fields(schema["items"], schemas, f"{path}[]")
    found: Fields = {}
    for name, below in schema.get("properties", {}).items():
        place = f"{path}.{name}" if path else name
        found[place] = name in schema.get("required", ())
        found |= _fields(below, schemas, place)
    return found


def _any_of(alternatives: Sequence[Fields]) -> Fields:
    """Return the fields of what has one of several forms: those that each of them must have are those that must be there."""
    names = {name for fields in alternatives for name in fields}
    return {name: all(fields.get(name, False) for fields in alternatives) for name in names}


def complaints(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each thing that a client could rely on and cannot any more."""
    yield from (f"route {route!r} is gone" for route in old if route not in new)
    for route in old.keys() & new.keys():
        before, now = old[route], new[route]
        if before["status"] != now["status"]:
            yield f"{route} answers with {now['status']}, and did with {before['status']}"
        yield from (
            f"{route} does not read {name!r} of the query any more"
            for name in before["query"]
            if name not in now["query"]
        )
        yield from (
            f"{route} does not read {name!r} any more" for name in before["body"] if name not in now["body"]
        )
        yield from (
            f"{route} needs {name!r} now, which clients do not send: give it a default"
            for name in _needed(now["body"])
            if not before["body"].get(name) and _parent(name) in {*before["body"], ""}
        )
        for what in ("reply", "event"):
            yield from (
                f"the {what} of {route} has no {name!r} any more"
                for name in before[what]
                if name not in now[what]
            )
            yield from (
                f"the {what} of {route} may lack {name!r} now, which was always there"
                for name in _needed(before[what])
                if name in now[what] and not now[what][name]
            )


def _needed(fields: Fields) -> list[str]:
    return [name for name, required in fields.items() if required]


def _parent(name: str) -> str:
    """Return the field that a field stands in, "" for one that stands in the body itself."""
    return name.rpartition(".")[0].rstrip("[]")
