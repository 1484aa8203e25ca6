"""Recursion in a rewritten schema: removes or refuses definitions that no finite value matches.

Works on schemas that `schema_check` has rewritten: every `$ref` refers to `$defs`, and there is no `oneOf`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llmfw.core import RequestError


def close(root: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the root schema together with its definitions that have finite instances.

    Raises:
        RequestError: a definition refers to itself without nesting, or no finite value matches the schema.
    """
    _check_loops(definitions)
    finite: set[str] = set()
    while grown := {name for name in definitions.keys() - finite if _ends(definitions[name], finite)}:
        finite |= grown
    if not _ends(root, finite):
        raise RequestError("no value fits the schema: it is false, or refers to itself without an end")
    root = _without_endless(root, finite)
    kept = {name: _without_endless(definitions[name], finite) for name in sorted(finite)}
    return ({} if root is True else root) | ({"$defs": kept} if kept else {})


def _without_endless(schema: Any, finite: set[str]) -> Any:
    """Return a schema in which references to definitions with no finite instance are replaced by `false`."""
    if isinstance(schema, list):
        return [_without_endless(part, finite) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema and _target(schema) not in finite:
        return False
    out = dict(schema)
    for keyword in schema.keys() & {"items", "prefixItems", "additionalProperties", "allOf", "anyOf"}:
        out[keyword] = _without_endless(schema[keyword], finite)
    for keyword in schema.keys() & {"properties", "patternProperties"}:
        out[keyword] = {name: _without_endless(part, finite) for name, part in schema[keyword].items()}
    return out


def _target(schema: dict[str, Any]) -> str:
    """Return the name of the definition that a schema's `$ref` refers to."""
    return str(schema["$ref"]).rpartition("/")[2]


def _check_loops(definitions: dict[str, Any]) -> None:
    edges = {name: set(_in_place(body)) for name, body in definitions.items()}
    for name, ahead in edges.items():
        reached: set[str] = set()
        while ahead:
            reached |= ahead
            ahead = {following for one in ahead for following in edges[one]} - reached
        if name in reached:
            raise RequestError(
                "a '$ref' in the schema leads back to itself, and so means nothing; refer to a schema that ends"
            )


def _in_place(schema: Any) -> Iterator[str]:
    """Yield the names of the definitions that a schema applies to the same value, not to a nested one."""
    if not isinstance(schema, dict):
        return
    if "$ref" in schema:
        yield _target(schema)
    for keyword in ("allOf", "anyOf"):
        for part in schema.get(keyword, ()):
            yield from _in_place(part)


def _ends(schema: Any, finite: set[str]) -> bool:
    """Return whether a finite value may match a schema.

    Args:
        finite: names of definitions that finite values are known to match. A reference to any other
            definition counts as `false`.
    """
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema and _target(schema) not in finite:
        return False
    if not all(_ends(part, finite) for part in schema.get("allOf", ())):
        return False
    if "anyOf" in schema and not any(_ends(part, finite) for part in schema["anyOf"]):
        return False
    types = schema.get("type")
    if types == "object" or types == ["object"]:
        properties = schema.get("properties", {})
        return all(_ends(properties.get(key, True), finite) for key in schema.get("required", ()))
    if types == "array" or types == ["array"]:
        least = schema.get("minItems", 0)
        prefix = schema.get("prefixItems", [])[:least]
        rest = least <= len(prefix) or _ends(schema.get("items", True), finite)
        return rest and all(_ends(part, finite) for part in prefix)
    return True
