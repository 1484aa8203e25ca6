"""JSON schemas with valid and invalid values, by the specification of JSON Schema.

A backend may narrow a schema, so the valid values are the most obvious ones for a reader of the schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from llmfw.core.base.request import GrammarSpec
from llmfw.core.interfaces.grammar import Grammar

from .grammar_case import GrammarCase


class SchemaExample(NamedTuple):
    """A JSON schema.

    Attributes:
        schema: the schema.
        fits: values that are valid. Keys of objects are in the order of the schema.
        misfits: values that are invalid.
    """

    schema: Mapping[str, Any]
    fits: Sequence[Any]
    misfits: Sequence[Any]

    @property
    def spec(self) -> GrammarSpec:
        """Spec for a backend to compile."""
        return GrammarSpec("json_schema", json.dumps(self.schema))


def texts_of(value: Any) -> Sequence[str]:
    """Return the usual JSON texts of a value, with and without white space. A backend may accept only one."""
    return [json.dumps(value, separators=separators) for separators in ((",", ":"), (", ", ": "))]


def accepts(case: GrammarCase, grammar: Grammar, value: Any) -> bool:
    """Return whether a grammar accepts at least one text of a value."""
    return any(case.fits(grammar, text) for text in texts_of(value))


def _object(
    properties: Mapping[str, Any], required: Sequence[str] = (), more: Mapping[str, Any] = {}
) -> dict[str, Any]:
    """Return a schema for objects that have only these properties.

    Args:
        more: further keywords.
    """
    own = {"type": "object", "properties": properties, "required": list(required)}
    return {**own, "additionalProperties": False, **more}


_INT, _BOOL, _STR = {"type": "integer"}, {"type": "boolean"}, {"type": "string"}
_A_OR_B = _object({"kind": {"const": "a"}, "x": _INT}, ["kind", "x"])
_POINTED = {"a/b": {"enum": [1]}, "c~d": {"enum": [2]}, "e%f": {"enum": [3]}, "g h": {"enum": [4]}}

SCHEMAS = (
    SchemaExample({"type": "integer", "minimum": 3, "maximum": 12}, (3, 9, 10, 12), (2, 13, 30, -3)),
    SchemaExample({"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 6}, (4, 5), (3, 6, 45)),
    SchemaExample({"type": "integer", "multipleOf": 5}, (0, 5, 10, 125), (1, 4, 12, 51)),
    SchemaExample({"type": "integer", "minimum": 1, "multipleOf": 3}, (3, 12), (0, 4, -3)),
    SchemaExample({"type": "number", "minimum": 0, "maximum": 1}, (0, 0.5, 1), (-0.5, 1.5, 2)),
    SchemaExample({"type": "number", "exclusiveMinimum": 0}, (0.5, 1), (0, -1)),
    SchemaExample({"type": "number", "multipleOf": 0.5}, (0.5, 1.5, 2), (0.25, 1.3)),
    SchemaExample({"type": "string", "minLength": 2, "maxLength": 3}, ("ab", "abc"), ("", "a", "abcd")),
    SchemaExample({"type": "string", "pattern": "^[a-c]+$"}, ("a", "abc"), ("", "d", "ad", "da")),
    SchemaExample({"type": "string", "pattern": "b"}, ("b", "abc"), ("", "ac")),
    SchemaExample({"type": "string", "pattern": "^a|b$"}, ("ac", "cb", "a", "b"), ("c", "ca", "bc")),
    SchemaExample({"type": "string", "pattern": "^\\d{2}$"}, ("12", "00"), ("1", "123", "ab")),
    SchemaExample({"type": "string", "pattern": "^a", "maxLength": 2}, ("a", "ab"), ("", "b", "abc")),
    SchemaExample({"type": "string", "format": "date"}, ("2024-02-28",), ("2024", "2024-13-01", "today")),
    SchemaExample({"type": "string", "format": "uuid"}, ("123e4567-e89b-12d3-a456-426614174000",), ("123e",)),
    SchemaExample({"type": ["string", "null"]}, ("a", None), (1, True, [], {})),
    SchemaExample({"const": {"a": [1, "x"]}}, ({"a": [1, "x"]},), ({"a": [1]}, {}, 1)),
    SchemaExample({"enum": [1, "a", None, True]}, (1, "a", None, True), (2, "b", False, "null")),
    SchemaExample({"type": "integer", "enum": [1, "a", 2]}, (1, 2), ("a", 3)),
    SchemaExample({"enum": [1, 2, 3], "minimum": 2}, (2, 3), (1, 4)),
    SchemaExample({"type": "array", "items": _BOOL, "minItems": 1, "maxItems": 2}, ([True], [True, False]), ([], [True] * 3, [1])),
    SchemaExample({"type": "array", "prefixItems": [_INT, _BOOL], "items": False}, ([1, True], [1]), ([True], [1, True, 2])),
    SchemaExample({"type": "array", "prefixItems": [_INT], "items": _BOOL}, ([1], [1, True, False]), ([True], [1, 2])),
    SchemaExample({"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": [_INT, _BOOL], "additionalItems": False}, ([1, True],), ([True, 1], [1, True, 1])),
    SchemaExample({"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": [_INT], "additionalItems": _BOOL}, ([1], [1, True]), ([True], [1, 2])),
    SchemaExample({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "minimum": 3, "exclusiveMinimum": True}, (4, 10), (3, 2)),
    SchemaExample({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "array", "prefixItems": [_INT], "items": False}, ([1], []), ([True], [1, 1])),
    SchemaExample({"type": "array", "items": _INT, "contains": {"const": 3}}, ([3], [3, 1]), ([], [1])),
    SchemaExample({"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True, "maxItems": 2}, ([1], [1, 2]), ([1, 1],)),
    SchemaExample(_object({"a": _INT, "b": _BOOL}, ["a"]), ({"a": 1}, {"a": 1, "b": True}), ({}, {"b": True}, {"a": True}, {"a": 1, "c": 1})),
    SchemaExample(_object({"a": _INT}, ["a"], {"additionalProperties": _BOOL}), ({"a": 1}, {"a": 1, "z": True}), ({"z": True}, {"a": 1, "z": 1})),
    SchemaExample(_object({"a": False, "b": True}), ({}, {"b": 1}, {"b": "x"}), ({"a": 1},)),
    SchemaExample({"type": "object", "required": ["z"], "properties": {"a": _INT}}, ({"a": 1, "z": 2}, {"z": "x"}), ({}, {"a": 1})),
    SchemaExample({"type": "object", "patternProperties": {"^x": _INT}, "additionalProperties": False}, ({}, {"x1": 1}), ({"y": 1}, {"x1": True})),
    SchemaExample({"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": _INT}, ({"a": 1},), ({"c": 1},)),
    SchemaExample({"type": "object", "additionalProperties": _INT, "minProperties": 1, "maxProperties": 2}, ({"a": 1}, {"a": 1, "b": 2}), ({}, {"a": 1, "b": 2, "c": 3})),
    SchemaExample(_object({"a": _INT, "b": _INT}, (), {"dependentRequired": {"a": ["b"]}}), ({}, {"b": 1}, {"a": 1, "b": 1}), ({"a": 1},)),
    SchemaExample({"anyOf": [_INT, _BOOL]}, (1, True), ("a", None)),
    SchemaExample({"anyOf": [_A_OR_B, _object({"kind": {"const": "b"}, "y": _BOOL}, ["kind"])]}, ({"kind": "a", "x": 1}, {"kind": "b"}, {"kind": "b", "y": True}), ({"kind": "a"}, {"kind": "a", "y": True}, {"kind": "c"})),
    SchemaExample({"oneOf": [{"type": "integer"}, {"type": "string"}]}, (1, "a"), (True, None, 1.5)),
    SchemaExample({"oneOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]}, (1, 3), (2, 4)),
    SchemaExample({"oneOf": [{"type": "integer", "minimum": 3}, {"type": "integer", "maximum": 5}]}, (2, 6), (3, 4, 5)),
    SchemaExample({"oneOf": [_A_OR_B, _object({"kind": {"const": "b"}}, ["kind"])]}, ({"kind": "a", "x": 1}, {"kind": "b"}), ({"kind": "b", "x": 1}, {})),
    SchemaExample({"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 5}]}, (3, 5), (2, 6)),
    SchemaExample({"allOf": [{"type": "object", "properties": {"a": _INT}, "required": ["a"]}, {"properties": {"b": _BOOL}, "required": ["b"]}]}, ({"a": 1, "b": True},), ({"a": 1}, {"b": True}, {"a": True, "b": True})),
    SchemaExample({"type": "integer", "not": {"const": 3}}, (2, 4, 33), (3,)),
    SchemaExample({"type": ["integer", "boolean"], "not": {"type": "boolean"}}, (1, 0), (True, "a")),
    SchemaExample({"type": "string", "not": {"enum": ["a", "b"]}}, ("", "c", "ab"), ("a", "b")),
    SchemaExample({"enum": [1, 2, 3], "not": {"minimum": 3}}, (1, 2), (3,)),
    SchemaExample(_object({"a": _INT, "b": _INT}, (), {"not": {"required": ["a"]}}), ({}, {"b": 1}), ({"a": 1}, {"a": 1, "b": 1})),
    SchemaExample({"enum": [1, 2, "x"], "not": {"not": _INT}}, (1, 2), ("x",)),
    SchemaExample(
        _object({"k": {"enum": ["a", "b"]}, "v": True}, ["k", "v"], {"if": {"properties": {"k": {"const": "a"}}}, "then": {"properties": {"v": _INT}}, "else": {"properties": {"v": _BOOL}}}),
        ({"k": "a", "v": 1}, {"k": "b", "v": True}),
        ({"k": "a", "v": True}, {"k": "b", "v": 1}),
    ),
    SchemaExample(
        _object({"k": {"enum": ["a", "b"]}, "v": _INT}, ["k"], {"allOf": [{"if": {"properties": {"k": {"const": "a"}}, "required": ["k"]}, "then": {"required": ["v"]}}]}),
        ({"k": "b"}, {"k": "a", "v": 1}),
        ({"k": "a"}, {"v": 1}),
    ),
    SchemaExample({"$defs": {"n": {"enum": [1, 2]}}, "type": "array", "items": {"$ref": "#/$defs/n"}}, ([], [1, 2]), ([3],)),
    SchemaExample({"definitions": _POINTED, "anyOf": [{"$ref": f"#/definitions/{name}"} for name in ("a~1b", "c~0d", "e%25f", "g%20h")]}, (1, 2, 3, 4), (5, 0)),
    SchemaExample({"$defs": {"n": {"$anchor": "here", "enum": [1]}}, "$ref": "#here"}, (1,), (2,)),
    SchemaExample({"$id": "https://a.example/x/y.json", "$defs": {"n": {"$id": "z.json", "enum": [1]}}, "$ref": "https://a.example/x/z.json"}, (1,), (2,)),
    SchemaExample({"$defs": {"n": {"$id": "https://a.example/z", "$defs": {"m": {"enum": [1]}}, "$ref": "#/$defs/m"}, "m": {"enum": [2]}}, "$ref": "#/$defs/n"}, (1,), (2,)),
    SchemaExample({"$defs": {"n": {"type": "integer"}}, "$ref": "#/$defs/n", "minimum": 3}, (3, 4), (2,)),
    SchemaExample({"type": "array", "items": {"$ref": "#"}, "maxItems": 2}, ([], [[]], [[], [[]]]), (1, [1], [[], [], []])),
)  # fmt: skip
