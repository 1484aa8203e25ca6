"""Schemas for the tests: those that are held to, and those that are refused."""

from __future__ import annotations

from typing import Any

D4, D6 = "http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-06/schema#"
D7, D19 = "http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2019-09/schema"

STRING, INTEGER = {"type": "string", "maxLength": 8}, {"type": "integer", "minimum": -999, "maximum": 999}


def record(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a schema of objects with all of some properties, and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        **more,
    }


SUPPORTED: dict[str, Any] = {
    "null": {"type": "null"},
    "types": {"type": ["boolean", "integer", "null"]},
    "string": STRING,
    "length": {"type": "string", "minLength": 3, "maxLength": 5},
    "length as float": {"type": "string", "minLength": 2.0, "maxLength": 4.0},
    "pattern unanchored": {"type": "string", "pattern": "b[0-9]", "maxLength": 12},
    "pattern anchored": {"type": "string", "pattern": "^[A-Z]{2}-\\d{3}$"},
    "pattern half anchored": {"type": "string", "pattern": "^ab|yz$", "maxLength": 9},
    "pattern classes": {"type": "string", "pattern": "^\\w\\W\\d\\D\\s\\S$"},
    "pattern complements": {"type": "string", "pattern": "^[^\\w][^\\s\\d][^a-z/]$"},
    "pattern lazy": {"type": "string", "pattern": "^a+?(?:b|c)*?$", "maxLength": 9},
    "pattern of any": {"type": "string", "pattern": "^[\\s\\S]{2}$"},
    "date": {"type": "string", "format": "date"},
    "date-time": {"type": "string", "format": "date-time"},
    "time": {"type": "string", "format": "time"},
    "email": {"type": "string", "format": "email", "maxLength": 20},
    "ipv4": {"type": "string", "format": "ipv4"},
    "ipv6": {"type": "string", "format": "ipv6"},
    "uuid": {"type": "string", "format": "uuid"},
    "format and pattern": {"type": "string", "format": "date", "pattern": "^19"},
    "format unknown": {"type": "string", "format": "shade", "maxLength": 5},
    "integer bounds": {"type": "integer", "minimum": -2.5, "exclusiveMaximum": 7},
    "huge bounds": {"type": "integer", "minimum": -(2**63), "maximum": 2**64},
    "number bounds": {"type": "number", "minimum": 0.1, "maximum": 0.3},
    "number exclusive": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    "number exclusive large": {"type": "number", "exclusiveMinimum": 10**10, "exclusiveMaximum": 10**11},
    "draft 4 exclusive": {
        "$schema": D4,
        "type": "number",
        "minimum": 1,
        "exclusiveMinimum": True,
        "maximum": 2,
    },
    "multipleOf": {"type": "integer", "multipleOf": 7},
    "multipleOf half": {"type": "number", "multipleOf": 0.5, "minimum": -3, "maximum": 3},
    "multipleOf twice": {"type": "integer", "allOf": [{"multipleOf": 6}, {"multipleOf": 4}]},
    "const": {"const": {"a": [1, 2.5, None, True], "ü": '\n"'}},
    "enum": {"enum": ["a", 1, 1.0, None, [], {"b": False}, -0.5]},
    "enum and type": {"enum": ["a", 1, None], "type": ["string", "null"]},
    "items": {"type": "array", "items": INTEGER, "minItems": 1, "maxItems": 4},
    "prefixItems": {"type": "array", "prefixItems": [INTEGER, STRING], "items": False, "minItems": 1},
    "draft 7 tuple": {
        "$schema": D7,
        "type": "array",
        "items": [INTEGER],
        "additionalItems": STRING,
        "maxItems": 3,
    },
    "draft 7 ignores prefixItems": {
        "$schema": D7,
        "type": "array",
        "prefixItems": [STRING],
        "items": INTEGER,
    },
    "many items": {"type": "array", "items": {"type": "null"}, "maxItems": 10**9},
    "contains": {"type": "array", "items": INTEGER, "contains": {"minimum": 5}, "maxItems": 3},
    "uniqueItems of an enum": {"type": "array", "items": {"enum": [1, 1.0, "a", True]}, "uniqueItems": True},
    "uniqueItems of more": {
        "type": "array",
        "items": {"enum": list("abcdef")},
        "uniqueItems": True,
        "minItems": 2,
    },
    "uniqueItems of one": {"type": "array", "items": STRING, "uniqueItems": True, "maxItems": 1},
    "unevaluatedItems": {"type": "array", "prefixItems": [INTEGER], "unevaluatedItems": False},
    "object": record({"b": INTEGER, "a": STRING}),
    "optional": {**record({"a": INTEGER, "b": INTEGER}), "required": ["b"]},
    "no type": {"properties": {"a": INTEGER}, "maxLength": 4, "maximum": 5, "items": INTEGER},
    "additionalProperties": {"type": "object", "properties": {"a": INTEGER}, "additionalProperties": STRING},
    "names in disguise": {
        "type": "object",
        "properties": {'"': False, "\\": False, "a": False, "\n": False},
        "additionalProperties": {"type": "null"},
    },
    "patternProperties": {
        "type": "object",
        "properties": {"n_x": {"minimum": 3}},
        "patternProperties": {"^n_": INTEGER, "^s_\\w$": STRING},
        "additionalProperties": False,
    },
    "patternProperties and others": {
        "type": "object",
        "patternProperties": {"^\\d+$": INTEGER},
        "additionalProperties": {"type": "null"},
    },
    "propertyNames": {
        "type": "object",
        "propertyNames": {"pattern": "^[a-z]{2}$"},
        "additionalProperties": INTEGER,
    },
    "propertyNames enum": {
        "type": "object",
        "properties": {"z": INTEGER},
        "propertyNames": {"enum": ["x", "y"]},
    },
    "propertyNames length": {
        "type": "object",
        "propertyNames": {"maxLength": 2},
        "additionalProperties": INTEGER,
    },
    "minProperties": {"type": "object", "additionalProperties": INTEGER, "minProperties": 1},
    "minProperties of named": {**record({"a": INTEGER, "b": INTEGER}), "required": [], "minProperties": 1},
    "maxProperties": {"type": "object", "additionalProperties": INTEGER, "maxProperties": 2},
    "maxProperties one": {**record({"a": INTEGER, "b": INTEGER}), "required": [], "maxProperties": 1},
    "maxProperties none": {"type": "object", "properties": {"a": INTEGER}, "maxProperties": 0},
    "unevaluatedProperties": {"type": "object", "properties": {"a": INTEGER}, "unevaluatedProperties": False},
    "dependentRequired": {
        **record({"a": INTEGER, "b": INTEGER}),
        "required": [],
        "dependentRequired": {"a": ["b"]},
    },
    "dependencies": {
        **record({"a": INTEGER, "b": INTEGER}),
        "$schema": D7,
        "required": [],
        "dependencies": {"a": ["b"], "b": {"properties": {"b": {"minimum": 0}}}},
    },
    "allOf": {"allOf": [record({"a": INTEGER}), {"properties": {"a": {"minimum": 990}}}]},
    "anyOf": {"anyOf": [STRING, record({"a": INTEGER}), {"type": "array", "items": {"type": "null"}}]},
    "anyOf and siblings": {
        **record({"a": INTEGER}),
        "anyOf": [{"properties": {"a": {"const": n}}} for n in (1, 2)],
    },
    "oneOf of types": {"oneOf": [STRING, INTEGER, {"type": "null"}]},
    "oneOf of tags": {
        "oneOf": [record({"t": {"const": "a"}, "x": INTEGER}), record({"t": {"enum": ["b", "c"]}})]
    },
    "oneOf required": {
        **record({"a": INTEGER, "b": INTEGER}),
        "required": [],
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
    },
    "oneOf of refs": {
        "oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}],
        "$defs": {
            "a": record({"k": {"const": 1}}),
            "b": record({"k": {"const": 2}, "next": {"type": "null"}}),
        },
    },
    "not": {"type": "string", "not": {"enum": ["a", "bc"]}, "maxLength": 2},
    "not type": {"not": {"type": ["object", "array", "string", "number"]}},
    "not required": {**record({"a": INTEGER, "b": INTEGER}), "required": [], "not": {"required": ["a", "b"]}},
    "if then else": {
        **record({"kind": {"enum": ["s", "n"]}, "v": {"anyOf": [STRING, INTEGER]}}),
        "if": {"properties": {"kind": {"const": "s"}}},
        "then": {"properties": {"v": {"type": "string"}}},
        "else": {"properties": {"v": {"type": "integer"}}},
    },
    "ifs about one property": {
        **record({"kind": {"enum": list("abcdefghij")}, "v": {"anyOf": [STRING, INTEGER]}}),
        "allOf": [
            {
                "if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
                "then": {"properties": {"v": {"type": "string" if kind < "e" else "integer"}}},
            }
            for kind in "abcdefgh"
        ],
    },
    "ifs about one property that may be absent or anything": {
        **record({"kind": {}, "v": {"anyOf": [STRING, INTEGER]}}),
        "required": [],
        "allOf": [
            {"if": {"properties": {"kind": {"const": "a"}}}, "then": {"required": ["v"]}},
            {"if": {"properties": {"kind": {"enum": ["b", True]}}}, "else": {"properties": {"v": False}}},
        ],
    },
    "recursion": {
        "$ref": "#/$defs/n",
        "$defs": {"n": record({"next": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}})},
    },
    "refs of all kinds": {
        "$id": "http://x.org/s",
        "$defs": {"a/b": {"type": "null"}, "c": {"$anchor": "here", "type": "boolean"}},
        **record(
            {"p": {"$ref": "#/$defs/a~1b"}, "q": {"$ref": "#here"}, "r": {"$ref": "http://x.org/s#/$defs/c"}}
        ),
    },
    "ref alone in draft 7": {
        "$schema": D7,
        "definitions": {"a": INTEGER},
        **record({"p": {"$ref": "#/definitions/a", "type": "string"}}),
    },
    "annotations": {
        "type": "null",
        "title": "t",
        "default": 3,
        "examples": [1],
        "nullable": True,
        "x-guidance": {},
    },
    "no anchor": {
        "anyOf": [{"$ref": "#a"}],
        "$defs": {
            "enum": {"enum": [{"$anchor": "a", "type": "null"}]},
            "schema": {"$anchor": "a", "type": "boolean"},
            "const": {"const": {"$anchor": "a", "type": "null"}},
        },
    },
    "unevaluatedProperties beside additional ones": {
        **record({"a": INTEGER}),
        "additionalProperties": {"type": "integer"},
        "unevaluatedProperties": False,
    },
    "another draft's keyword": {"$schema": D4, "type": "integer", "const": 3, "maximum": 9, "minimum": 0},
}
"""By what they are about."""

REFUSED: dict[str, tuple[Any, str]] = {
    "circle beside others": (
        {"additionalProperties": {"minProperties": 1, "anyOf": [STRING, {"$ref": "#"}]}},
        r"a '\$ref' that leads back",
    ),
    "combinations": (
        {
            **record({key: {"enum": ["1", "2", "3"]} for key in "abcdefghijkl"}),
            "allOf": [
                {
                    "anyOf": [
                        {"properties": {k: {"const": "1"}}},
                        {"properties": {k: {"const": "2"}}, "required": ["x" + k]},
                    ]
                }
                for k in "abcdefghijkl"
            ],
        },
        "'if' have too many combinations",
    ),
    "uniqueItems": ({"type": "array", "items": STRING, "uniqueItems": True}, "'uniqueItems' at '#'"),
    "place": (record({"a": {"type": "array", "uniqueItems": True}}), "'uniqueItems' at '#/properties/a'"),
    "minContains": ({"type": "array", "contains": INTEGER, "minContains": 2}, "'minContains'"),
    "maxContains": ({"type": "array", "contains": INTEGER, "maxContains": 2}, "'maxContains'"),
    "minItems": ({"type": "array", "minItems": 10**9}, "'minItems' .* limit is 500"),
    "minProperties": ({"type": "object", "minProperties": 3}, "'minProperties'"),
    "maxProperties": (
        {"type": "object", "properties": {"a": {}, "b": {}}, "maxProperties": 1},
        "'maxProperties'",
    ),
    "multipleOf": ({"type": "number", "multipleOf": 0.01}, "'multipleOf' .*not an exact double"),
    "multipleOf large": ({"allOf": [{"multipleOf": 65537}, {"multipleOf": 65539}]}, "least common multiple"),
    "minimum": ({"type": "integer", "minimum": 2**60}, "'minimum'"),
    "minimum as text": ({"type": "integer", "minimum": "3"}, "'minimum' .*must be a number"),
    "const": ({"const": 2**60}, "'const'"),
    "control character": ({"enum": ["\x01"]}, r"'enum' .*U\+0001"),
    "lookahead": ({"type": "string", "pattern": "^(?=a)b"}, "'pattern' .*lookahead"),
    "back reference": ({"type": "string", "pattern": "(a)\\1"}, "'pattern' .*references"),
    "word boundary": ({"type": "string", "pattern": "\\bfoo"}, "'pattern' .*word boundaries"),
    "inner anchor": ({"type": "string", "pattern": "a$b"}, "'pattern' .*anchor"),
    "ECMA's own": ({"type": "string", "pattern": "\\p{L}"}, "'pattern' .*bad escape"),
    "patternProperties": (
        {"type": "object", "patternProperties": {"a": STRING, "b": INTEGER}},
        "patternProperty regexes .* are not disjoint",
    ),
    "oneOf": ({"oneOf": [INTEGER, {"type": "number"}]}, "'oneOf' at '#/oneOf' .*schemas 0 and 1"),
    "oneOf of wider": ({"oneOf": [{"type": "object"}, record({"a": INTEGER})]}, "'oneOf'"),
    "not": ({"not": {"pattern": "a"}}, "'pattern' at '#/not/pattern' .*'not' or 'if'"),
    "if": ({"if": {"minimum": 3}, "then": {"multipleOf": 2}}, "'minimum' at '#/if/minimum'"),
    "unevaluatedProperties": (
        {"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False},
        "'unevaluatedProperties'",
    ),
    "propertyNames": ({"propertyNames": {"not": {"const": "a"}}}, "'propertyNames'"),
    "dynamicRef": ({"$dynamicRef": "#a"}, r"'\$dynamicRef'"),
    "recursiveRef": ({"$schema": D19, "$recursiveRef": "#"}, r"'\$recursiveRef'"),
    "remote ref": ({"$ref": "http://x.org/a.json"}, r"'\$ref' .*outside of this schema"),
    "dangling ref": ({"$ref": "#/$defs/a"}, r"'\$ref' .*nothing at '#/\$defs/a'"),
    "ref to itself": ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "leads back to itself"),
    "tuple without a draft": ({"type": "array", "items": [INTEGER]}, "'items' .*name a draft"),
    "draft 3": ({"$schema": "http://json-schema.org/draft-03/schema#"}, r"'\$schema' .*draft 4 or later"),
    "unknown type": ({"type": "text"}, "'type' .*'text' is not a type"),
    "false": (False, "no value fits"),
    "unsatisfiable": ({"type": "string", "minLength": 3, "maxLength": 2}, "minLength"),
    "without an end": (
        {"$defs": {"a": record({"x": {"$ref": "#/$defs/a"}})}, "$ref": "#/$defs/a"},
        "without an end",
    ),
    "malformed type": ({"oneOf": [{"type": 5}, {"type": [[1]]}]}, "'type' .*5 is not a type"),
    "malformed not": ({"not": {"required": 5}}, "'required' .*array of names"),
    "no schema": ([1], "a schema is an object or a boolean"),
    "no schema inside": ({"properties": {"a": 3}}, "a schema is an object or a boolean"),
    "id inside": ({"items": {"$id": "http://x.org/b", "items": {"$ref": "#"}}}, r"'\$id' at '#/items'"),
}
"""By what they are about: a schema, and what the reason says."""
