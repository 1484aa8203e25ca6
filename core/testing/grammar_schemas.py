"""JSON schemas with valid and invalid values, by the specification of JSON Schema.

A backend may narrow a schema, so the valid values are the most obvious ones for a reader of the schema.
"""

from __future__ import annotations

from .schema_example import BOOL, INT, STR, SchemaExample, closed
from .schemas_combined import COMBINED
from .schemas_of_arrays import ARRAYS
from .schemas_of_objects import OBJECTS
from .schemas_of_values import VALUES

_A_OR_B = closed({"kind": {"const": "a"}, "x": INT}, ["kind", "x"])
_POINTED = {"a/b": {"enum": [1]}, "c~d": {"enum": [2]}, "e%f": {"enum": [3]}, "g h": {"enum": [4]}}

SCHEMAS = (
    *VALUES,
    *ARRAYS,
    *OBJECTS,
    *COMBINED,
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
    SchemaExample({"type": "array", "items": BOOL, "minItems": 1, "maxItems": 2}, ([True], [True, False]), ([], [True] * 3, [1])),
    SchemaExample({"type": "array", "prefixItems": [INT, BOOL], "items": False}, ([1, True], [1]), ([True], [1, True, 2])),
    SchemaExample({"type": "array", "prefixItems": [INT], "items": BOOL}, ([1], [1, True, False]), ([True], [1, 2])),
    SchemaExample({"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": [INT, BOOL], "additionalItems": False}, ([1, True],), ([True, 1], [1, True, 1])),
    SchemaExample({"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": [INT], "additionalItems": BOOL}, ([1], [1, True]), ([True], [1, 2])),
    SchemaExample({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "minimum": 3, "exclusiveMinimum": True}, (4, 10), (3, 2)),
    SchemaExample({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "array", "prefixItems": [INT], "items": False}, ([1], []), ([True], [1, 1])),
    SchemaExample({"type": "array", "items": INT, "contains": {"const": 3}}, ([3], [3, 1]), ([], [1])),
    SchemaExample({"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True, "maxItems": 2}, ([1], [1, 2]), ([1, 1],)),
    SchemaExample(closed({"a": INT, "b": BOOL}, ["a"]), ({"a": 1}, {"a": 1, "b": True}), ({}, {"b": True}, {"a": True}, {"a": 1, "c": 1})),
    SchemaExample(closed({"a": INT}, ["a"], {"additionalProperties": BOOL}), ({"a": 1}, {"a": 1, "z": True}), ({"z": True}, {"a": 1, "z": 1})),
    SchemaExample(closed({"a": False, "b": True}), ({}, {"b": 1}, {"b": "x"}), ({"a": 1},)),
    SchemaExample({"type": "object", "required": ["z"], "properties": {"a": INT}}, ({"a": 1, "z": 2}, {"z": "x"}), ({}, {"a": 1})),
    SchemaExample({"type": "object", "patternProperties": {"^x": INT}, "additionalProperties": False}, ({}, {"x1": 1}), ({"y": 1}, {"x1": True})),
    SchemaExample({"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": INT}, ({"a": 1},), ({"c": 1},)),
    SchemaExample({"type": "object", "additionalProperties": INT, "minProperties": 1, "maxProperties": 2}, ({"a": 1}, {"a": 1, "b": 2}), ({}, {"a": 1, "b": 2, "c": 3})),
    SchemaExample(closed({"a": INT, "b": INT}, (), {"dependentRequired": {"a": ["b"]}}), ({}, {"b": 1}, {"a": 1, "b": 1}), ({"a": 1},)),
    SchemaExample({"anyOf": [INT, BOOL]}, (1, True), ("a", None)),
    SchemaExample({"anyOf": [_A_OR_B, closed({"kind": {"const": "b"}, "y": BOOL}, ["kind"])]}, ({"kind": "a", "x": 1}, {"kind": "b"}, {"kind": "b", "y": True}), ({"kind": "a"}, {"kind": "a", "y": True}, {"kind": "c"})),
    SchemaExample({"oneOf": [{"type": "integer"}, {"type": "string"}]}, (1, "a"), (True, None, 1.5)),
    SchemaExample({"oneOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]}, (1, 3), (2, 4), is_hard=True),
    SchemaExample({"oneOf": [{"type": "integer", "minimum": 3}, {"type": "integer", "maximum": 5}]}, (2, 6), (3, 4, 5), is_hard=True),
    SchemaExample({"oneOf": [_A_OR_B, closed({"kind": {"const": "b"}}, ["kind"])]}, ({"kind": "a", "x": 1}, {"kind": "b"}), ({"kind": "b", "x": 1}, {})),
    SchemaExample({"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 5}]}, (3, 5), (2, 6)),
    SchemaExample({"allOf": [{"type": "object", "properties": {"a": INT}, "required": ["a"]}, {"properties": {"b": BOOL}, "required": ["b"]}]}, ({"a": 1, "b": True},), ({"a": 1}, {"b": True}, {"a": True, "b": True})),
    SchemaExample({"type": "integer", "not": {"const": 3}}, (2, 4, 33), (3,), is_hard=True),
    SchemaExample({"type": ["integer", "boolean"], "not": {"type": "boolean"}}, (1, 0), (True, "a")),
    SchemaExample({"type": "string", "not": {"enum": ["a", "b"]}}, ("", "c", "ab"), ("a", "b")),
    SchemaExample({"enum": [1, 2, 3], "not": {"minimum": 3}}, (1, 2), (3,), is_hard=True),
    SchemaExample(closed({"a": INT, "b": INT}, (), {"not": {"required": ["a"]}}), ({}, {"b": 1}), ({"a": 1}, {"a": 1, "b": 1})),
    SchemaExample({"enum": [1, 2, "x"], "not": {"not": INT}}, (1, 2), ("x",)),
    SchemaExample(
        closed({"k": {"enum": ["a", "b"]}, "v": True}, ["k", "v"], {"if": {"properties": {"k": {"const": "a"}}}, "then": {"properties": {"v": INT}}, "else": {"properties": {"v": BOOL}}}),
        ({"k": "a", "v": 1}, {"k": "b", "v": True}),
        ({"k": "a", "v": True}, {"k": "b", "v": 1}),
    ),
    SchemaExample(
        closed({"k": {"enum": ["a", "b"]}, "v": INT}, ["k"], {"allOf": [{"if": {"properties": {"k": {"const": "a"}}, "required": ["k"]}, "then": {"required": ["v"]}}]}),
        ({"k": "b"}, {"k": "a", "v": 1}),
        ({"k": "a"}, {"v": 1}),
    ),
    SchemaExample({"$defs": {"n": {"enum": [1, 2]}}, "type": "array", "items": {"$ref": "#/$defs/n"}}, ([], [1, 2]), ([3],)),
    SchemaExample({"definitions": _POINTED, "anyOf": [{"$ref": f"#/definitions/{name}"} for name in ("a~1b", "c~0d", "e%25f", "g%20h")]}, (1, 2, 3, 4), (5, 0)),
    SchemaExample({"$defs": {"n": {"$anchor": "here", "enum": [1]}}, "$ref": "#here"}, (1,), (2,)),
    SchemaExample({"$id": "https://a.example/x/y.json", "$defs": {"n": {"$id": "z.json", "enum": [1]}}, "$ref": "https://a.example/x/z.json"}, (1,), (2,), is_hard=True),
    SchemaExample({"$defs": {"n": {"$id": "https://a.example/z", "$defs": {"m": {"enum": [1]}}, "$ref": "#/$defs/m"}, "m": {"enum": [2]}}, "$ref": "#/$defs/n"}, (1,), (2,), is_hard=True),
    SchemaExample({"$defs": {"n": {"type": "integer"}}, "$ref": "#/$defs/n", "minimum": 3}, (3, 4), (2,)),
    SchemaExample({"type": "array", "items": {"$ref": "#"}, "maxItems": 2}, ([], [[]], [[], [[]]]), (1, [1], [[], [], []])),
)  # fmt: skip

UNBOUNDED = (
    STR,
    {"type": "array", "items": STR},
    {"type": "array", "items": {"type": "array", "items": INT}},
    {"type": "array", "items": closed({"a": STR, "b": {"type": "array", "items": BOOL}}, ["a"])},
    {"type": "object", "additionalProperties": STR},
)
"""Schemas whose values may be of any length, and of which any value can be completed by few characters."""
