"""Definitions of tools in the forms in which clients write them, for tests of tool parsers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

Tools = Sequence[Mapping[str, Any]]
Schema = Any
"""A JSON schema: an object, True or False."""

SAME: Mapping[str, Callable[[Mapping[str, Any]], Schema]] = {
    "a list of one type": lambda schema: {**schema, "type": [schema["type"]]},
    "anyOf": lambda schema: {"anyOf": [schema], "description": "a number or a text"},
    "oneOf": lambda schema: {"title": "One", "oneOf": [schema]},
    "an unknown keyword": lambda schema: {"x-order": [1], **schema, "examples": [1, "a", None]},
}
"""Ways to write the schema of a parameter with a type, such that it means the same."""

OTHERS: Mapping[str, Schema] = {
    "anything": {},
    "true": True,
    "false": False,
    "an enum": {"enum": [1, "a", None, True, 2.5, {"a": 1}, [1]]},
    "an enum of one": {"enum": [None]},
    "an optional number": {"type": ["integer", "null"]},
    "a number or nothing": {"anyOf": [{"type": "number"}, {"type": "null"}]},
    "a choice of anything": {"anyOf": [{}, True]},
    "a reference": {"$ref": "#/$defs/name"},
    "null": {"type": "null"},
    "a text": {"type": "string"},
    "an integer": {"type": "integer"},
    "a boolean": {"type": "boolean"},
    "an object": {"type": "object", "properties": {"a": {"type": "integer"}}},
    "an array": {"type": "array", "items": {"type": "string"}},
}
"""Schemas of a parameter. A model may write values that do not fit."""


def with_same_meaning(tools: Tools) -> Iterator[tuple[str, Tools]]:
    """Yield descriptions, each with the tools: their schemas have another form, but the same meaning."""
    for name, change in SAME.items():
        yield name, _changed(tools, partial(_same, change))


def with_other_meanings(tools: Tools) -> Iterator[tuple[str, Tools]]:
    """Yield descriptions, each with tools of the same names that have other or undescribed parameters."""
    for name, other in OTHERS.items():
        yield name, _changed(tools, partial(_other, other))
    for name, parameters in (("no properties", {"type": "object"}), ("an empty schema", {})):
        yield name, [_with_parameters(tool, parameters) for tool in tools]
    yield "no parameters", [{**tool, "function": {"name": tool["function"]["name"]}} for tool in tools]


def _same(change: Callable[[Mapping[str, Any]], Schema], schema: Schema) -> Schema:
    """Return a schema in an equivalent form, if it has one type."""
    return change(schema) if isinstance(schema, dict) and isinstance(schema.get("type"), str) else schema


def _other(other: Schema, schema: Schema) -> Schema:
    return other


def _changed(tools: Tools, change: Callable[[Schema], Schema]) -> Tools:
    """Return tools with other schemas for their parameters."""
    found = []
    for tool in tools:
        parameters = tool["function"].get("parameters") or {}
        properties = {name: change(schema) for name, schema in parameters.get("properties", {}).items()}
        found.append(_with_parameters(tool, {**parameters, "properties": properties}))
    return found


def _with_parameters(tool: Mapping[str, Any], parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**tool, "function": {**tool["function"], "parameters": parameters}}
