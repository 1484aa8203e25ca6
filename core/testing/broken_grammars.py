"""Grammars that each backend has to refuse, because they are malformed or allow no output."""

from __future__ import annotations

import json
from typing import Any

from llmfw.core.base.request import GrammarSpec

from .schema_example import DRAFT_4, DRAFT_7, DRAFT_2020

_ENDLESS = {"type": "object", "properties": {"x": {"$ref": "#/$defs/e"}}, "required": ["x"]}

SCHEMAS: tuple[Any, ...] = (
    [],
    "string",
    5,
    None,
    {"type": "no such type"},
    {"type": 5},
    {"type": ["string", 5]},
    {"type": ["string", "text"]},
    {"type": "string", "minLength": -1},
    {"type": "string", "minLength": 1.5},
    {"type": "string", "maxLength": "1"},
    {"type": "string", "maxLength": True},
    {"type": "string", "minLength": None},
    {"type": "string", "pattern": 5},
    {"type": "string", "pattern": "("},
    {"type": "string", "pattern": "[b-a]"},
    {"type": "integer", "minimum": "3"},
    {"type": "integer", "minimum": True},
    {"type": "integer", "maximum": []},
    {"type": "integer", "exclusiveMaximum": None},
    {"$schema": DRAFT_4, "type": "integer", "minimum": 3, "exclusiveMinimum": 3},
    {"type": "integer", "multipleOf": 0},
    {"type": "integer", "multipleOf": -1},
    {"type": "integer", "multipleOf": "2"},
    {"type": "integer", "multipleOf": True},
    {"type": "array", "minItems": None},
    {"type": "array", "maxItems": -1},
    {"type": "array", "items": 5},
    {"type": "array", "items": {"type": "text"}},
    {"$schema": DRAFT_2020, "type": "array", "items": [{}]},
    {"$schema": DRAFT_7, "type": "array", "items": [5]},
    {"type": "array", "prefixItems": {}},
    {"type": "array", "prefixItems": [5]},
    {"type": "array", "contains": 5},
    {"type": "array", "contains": {}, "minContains": -1},
    {"type": "array", "uniqueItems": 1},
    {"type": "object", "properties": []},
    {"type": "object", "properties": {"a": 5}},
    {"type": "object", "properties": {"a": {"type": "text"}}},
    {"type": "object", "patternProperties": 5},
    {"type": "object", "patternProperties": {"(": {}}},
    {"type": "object", "additionalProperties": 5},
    {"type": "object", "required": "a"},
    {"type": "object", "required": [5]},
    {"type": "object", "minProperties": -1},
    {"type": "object", "maxProperties": "1"},
    {"type": "object", "propertyNames": {"pattern": 5}},
    {"type": "object", "propertyNames": {"pattern": "("}},
    {"type": "object", "propertyNames": {"minLength": -1}},
    {"type": "object", "dependentRequired": {"a": {}}},
    {"type": "object", "dependentRequired": {"a": [5]}},
    {"type": "object", "dependentRequired": []},
    {"type": "object", "dependentSchemas": {"a": 5}},
    {"enum": "a"},
    {"allOf": {}},
    {"allOf": [5]},
    {"anyOf": {}},
    {"anyOf": [{"type": "text"}]},
    {"oneOf": 5},
    {"oneOf": [{"type": 5}, {"type": [[1]]}]},
    {"not": 5},
    {"not": {"type": "text"}},
    {"not": {"not": 5}},
    {"if": 5, "then": {}},
    {"if": {"const": "a"}, "then": 5},
    {"if": {"const": "a"}, "else": 5},
    {"$ref": 5},
    {"$ref": "#/nowhere"},
    {"$ref": "#nowhere"},
    {"$ref": "#/anyOf/7", "anyOf": [{}]},
    {"$ref": "#/anyOf/x", "anyOf": [{}]},
    {"$ref": "https://a.example/nowhere.json"},
    {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
    {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"},
    False,
    {"allOf": [False]},
    {"anyOf": [False]},
    {"enum": []},
    {"type": "object", "required": ["a"], "properties": {"a": False}},
    {"type": "string", "minLength": 3, "maxLength": 2},
    {"type": "integer", "minimum": 3, "maximum": 2},
    {"type": "array", "items": False, "minItems": 1},
    {"$defs": {"e": _ENDLESS}, "$ref": "#/$defs/e"},
    {"$defs": {"e": {"type": "array", "items": {"$ref": "#/$defs/e"}, "minItems": 1}}, "$ref": "#/$defs/e"},
)
"""Malformed JSON schemas, and schemas that no value fits."""


def _tag(format: Any) -> dict[str, Any]:
    return {"type": "structural_tag", "format": format}


_TEXT = {"type": "const_string", "value": "a"}
_ONE = {"begin": "<f>", "content": _TEXT, "end": "</f>"}
TAGS: tuple[Any, ...] = (
    [],
    {},
    _tag(5),
    _tag({"type": "or", "elements": []}),
    _tag({"type": "or", "elements": _TEXT}),
    _tag({"type": "sequence", "elements": []}),
    _tag({"type": "sequence", "elements": [5]}),
    _tag({"type": "const_string"}),
    _tag({"type": "const_string", "value": 5}),
    _tag({"type": "const_string", "value": "\ud800"}),
    _tag({"type": "json_schema"}),
    _tag({"type": "json_schema", "json_schema": {"type": "text"}}),
    _tag({"type": "regex", "pattern": "("}),
    _tag({"type": "regex"}),
    _tag({"type": "grammar", "grammar": "start: ("}),
    _tag({"type": "grammar"}),
    _tag({"type": "any_text", "excludes": [5]}),
    _tag({"type": "any_text", "excludes": "a"}),
    _tag({"type": "tag", "begin": 1, "content": _TEXT, "end": ""}),
    _tag({"type": "tag", "begin": "a", "end": ""}),
    _tag({"type": "tag", "begin": "a", "content": _TEXT}),
    _tag({"type": "triggered_tags", "triggers": [], "tags": [_ONE]}),
    _tag({"type": "triggered_tags", "triggers": [""], "tags": [_ONE]}),
    _tag({"type": "triggered_tags", "triggers": ["<f"], "tags": []}),
    _tag({"type": "triggered_tags", "triggers": ["<f"], "tags": [{**_ONE, "begin": "<g>"}]}),
    _tag({"type": "tags_with_separator", "tags": [], "separator": ","}),
    _tag({"type": "tags_with_separator", "tags": [_ONE]}),
    _tag({"type": "verse"}),
)
"""Malformed structural tags."""

BROKEN = (
    GrammarSpec("regex", "("),
    GrammarSpec("json_schema", "{"),
    GrammarSpec("json_schema", ""),
    *(GrammarSpec("json_schema", json.dumps(schema)) for schema in SCHEMAS),
    GrammarSpec("ebnf", "start: ("),
    GrammarSpec("ebnf", 'root ::= ("a"'),
    *(GrammarSpec("structural_tag", json.dumps(tag)) for tag in TAGS),
    GrammarSpec("structural_tag", "{"),
    GrammarSpec("structural_tag", '{"format": ' * 2_000),
    GrammarSpec("no_such_kind", "a"),
)
