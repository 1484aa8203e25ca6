"""JSON schemas that combine schemas by `allOf`, `oneOf`, `not`, `if` and references, with valid and invalid values."""

from __future__ import annotations

from typing import Any

from .schema_example import BOOL, DRAFT_4, DRAFT_6, DRAFT_7, DRAFT_2019, INT, NULL, STR, closed
from .schema_example import SchemaExample as Example

_OBJECT = {"type": "object"}
_AB = {"a": INT, "b": INT}
_A, _B, _BOTH = {"a": 1}, {"b": 1}, {"a": 1, "b": 1}


def _kind(value: Any) -> dict[str, Any]:
    """Return a schema of objects whose `k` is a value."""
    return {"properties": {"k": {"const": value}}, "required": ["k"]}


NEGATED = (
    Example({"type": "integer", "not": False}, (1, -3), ("a",)),
    Example({"not": INT}, ("a", True, None, []), (1, -3)),
    Example({"not": {"type": ["object", "array", "string", "number"]}}, (None, True), (1, 1.5, "a", {}, [])),
    Example({"type": ["string", "null"], "not": STR}, (None,), ("a", "")),
    Example({"type": ["string", "null"], "not": {"type": ["null", "boolean"]}}, ("a",), (None,)),
    Example({"type": "string", "not": {"minLength": 3}}, ("", "ab"), ("abc", "abcd")),
    Example({"type": "string", "not": {"maxLength": 2}}, ("abc",), ("", "ab")),
    Example({"type": "string", "not": {"maxLength": 0}}, ("a",), ("",)),
    Example({"type": "string", "not": {"minLength": 1}}, ("",), ("a",)),
    Example({"type": "string", "not": {"minLength": 0}}, (), ("", "a"), is_hard=True),
    Example({"type": "string", "not": {"anyOf": [{"const": "a"}, {"maxLength": 0}]}}, ("b", "ab"), ("a", "")),
    Example({"type": "string", "not": {"allOf": [{"minLength": 2}, {"maxLength": 3}]}}, ("a", "abcd"), ("ab", "abc")),
    Example({"type": "string", "not": {"minLength": 2, "maxLength": 3}}, ("a", "abcd"), ("ab", "abc")),
    Example({"type": "string", "not": {"enum": ["a", "ab", "b", "ü", '"', "]", "^-"]}}, ("", "abc", "ac", "c", "aü", "^", "-", "bb"), ("a", "ab", "b", "ü", '"', "]", "^-")),
    Example({"type": "string", "not": {"const": ""}}, ("a", "ab"), ("",)),
    Example({"type": "string", "not": {"const": "abc"}}, ("", "a", "ab", "abcd", "abd", "xbc"), ("abc",)),
    Example({"type": ["boolean", "null"], "not": {"const": True}}, (False, None), (True,)),
    Example({"type": ["boolean", "null"], "not": {"enum": [None, True]}}, (False,), (True, None)),
    Example({"type": ["string", "boolean"], "not": {"enum": ["a", False]}}, ("b", True), ("a", False)),
    Example({"type": ["string", "null"], "not": {"const": None}}, ("a",), (None,)),
    Example({"enum": [1, 2], "not": {"enum": [2, 3]}}, (1,), (2, 3), is_hard=True),
    Example({"type": "string", "not": {"pattern": "a"}}, ("b",), ("a", "ba"), is_hard=True),
    Example({"type": "string", "not": {"not": {"const": "a"}}}, ("a",), ("b", "")),
    Example({"type": "string", "not": {"const": "a", "title": "t", "format": "x"}}, ("b", ""), ("a",)),
    Example({"type": "string", "not": {"$ref": "#/$defs/n"}, "$defs": {"n": {"enum": ["a"]}}}, ("b", ""), ("a",)),
    Example({"$schema": DRAFT_7, "type": "string", "not": {"$ref": "#/definitions/n", "maxLength": 0}, "definitions": {"n": {"enum": ["a"]}}}, ("b", ""), ("a",)),
    Example({"type": "string", "not": {"$ref": "#/$defs/n", "minLength": 2}, "$defs": {"n": {"enum": ["a", "ab"]}}}, ("b", "a"), ("ab",)),
    Example({"$schema": DRAFT_4, "type": "string", "not": {"enum": ["a"]}}, ("b",), ("a",)),
    Example({"$schema": DRAFT_4} | closed(_AB, (), {"not": {"required": ["a"]}}), ({}, _B), (_A, _BOTH)),
    Example(closed(_AB, (), {"not": {"required": ["a", "b"]}}), ({}, _A, _B), (_BOTH,)),
    Example(closed({"a": STR, "b": INT}, (), {"not": {"properties": {"a": {"const": "x"}}}}), ({"a": "y"}, {"a": "", "b": 1}), ({"a": "x"}, {}, {"b": 1})),
    Example(closed({"a": STR, "b": STR}, (), {"not": {"properties": {"a": {"const": "x"}, "b": {"const": "y"}}}}), ({"a": "y"}, {"b": "x"}), ({"a": "x", "b": "y"}, {}, {"a": "x"})),
    Example({"anyOf": [{"not": STR}, {"const": "a"}]}, ("a", None), ("b",)),
)  # fmt: skip

_KV = closed({"k": {"enum": ["a", "b", "c"]}, "v": {"anyOf": [STR, INT]}}, ["k", "v"])
_V_STR, _V_INT = {"properties": {"v": STR}}, {"properties": {"v": INT}}
_ANY_KV = closed({"k": {}, "v": INT})
_KVW = closed({"k": {"enum": ["a", "b"]}, "v": INT, "w": INT})

CONDITIONS = (
    Example(_KV | {"if": _kind("a"), "then": _V_STR, "else": _V_INT}, ({"k": "a", "v": "x"}, {"k": "b", "v": 1}), ({"k": "a", "v": 1}, {"k": "b", "v": "x"})),
    Example(_KV | {"if": _kind("a"), "then": _V_STR}, ({"k": "a", "v": "x"}, {"k": "b", "v": 1}, {"k": "b", "v": "x"}), ({"k": "a", "v": 1},)),
    Example(_KV | {"if": _kind("a"), "else": _V_INT}, ({"k": "a", "v": "x"}, {"k": "a", "v": 1}, {"k": "b", "v": 1}), ({"k": "b", "v": "x"},)),
    Example(_KV | {"if": _kind("a")}, ({"k": "a", "v": 1}, {"k": "b", "v": "x"}), ({"k": "d", "v": 1},)),
    Example(_KV | {"then": _V_STR, "else": _V_INT}, ({"k": "a", "v": 1}, {"k": "b", "v": "x"}), ({"k": "d", "v": 1},)),
    Example({"type": "string", "if": {"const": "a"}, "then": {"maxLength": 0}}, ("", "b", "ab"), ("a",)),
    Example({"type": ["string", "null"], "if": STR, "then": {"minLength": 2}}, ("ab", None), ("a", "")),
    Example({"$schema": DRAFT_6, "type": "string", "if": {"const": "a"}, "then": {"maxLength": 0}}, ("a", "b"), (1,)),
    Example({"if": {"minimum": 3}, "then": {"multipleOf": 2}}, (1, 4), (5, 7), is_hard=True),
    Example(_KV | {"allOf": [{"if": _kind("a"), "then": _V_STR}, {"if": _kind("b"), "then": _V_INT}]}, ({"k": "a", "v": "x"}, {"k": "b", "v": 1}, {"k": "c", "v": 1}, {"k": "c", "v": "x"}), ({"k": "a", "v": 1}, {"k": "b", "v": "x"}, {"k": "d", "v": 1})),
    Example(_KV | {"allOf": [{"if": {"properties": {"k": {"enum": ["a", "b"]}}}, "then": _V_STR, "else": _V_INT}, {"if": {"properties": {"k": {"const": "b"}}, "type": "object"}, "then": {"properties": {"v": {"maxLength": 1}}}}]}, ({"k": "a", "v": "xx"}, {"k": "b", "v": "x"}, {"k": "c", "v": 1}), ({"k": "a", "v": 1}, {"k": "b", "v": "xx"}, {"k": "c", "v": "x"})),
    Example(
        _ANY_KV | {"allOf": [{"if": {"properties": {"k": {"const": "a"}}}, "then": {"required": ["v"]}}, {"if": {"properties": {"k": {"enum": ["b", True, None]}}}, "else": {"properties": {"v": False}}}]},
        ({"v": 1}, {"k": "b"}, {"k": "b", "v": 1}, {"k": True, "v": 1}, {"k": None, "v": 1}, {"k": "z"}, {"k": 1}),
        ({}, {"k": "a"}, {"k": "a", "v": 1}, {"k": "z", "v": 1}, {"k": 1, "v": 1}, {"k": False, "v": 1}),
    ),
    Example(
        _KVW | {"allOf": [{"if": _kind("a"), "then": {"required": ["v"]}, "else": {"properties": {"v": False}}}, {"if": _kind("b"), "then": {"required": ["w"]}}]},
        ({}, {"w": 1}, {"k": "a", "v": 1}, {"k": "a", "v": 1, "w": 1}, {"k": "b", "w": 1}),
        ({"v": 1}, {"k": "a"}, {"k": "b"}, {"k": "b", "v": 1, "w": 1}),
    ),
    Example(
        closed({"k": {"enum": ["a", "b"]}, "m": {"enum": ["a", "b"]}, "v": INT, "w": INT}, ["k", "m"], {"allOf": [{"if": {"properties": {"m": {"const": "a"}}}, "then": {"required": ["v"]}}, {"if": _kind("a"), "then": {"required": ["v"]}}, {"if": _kind("b"), "then": {"required": ["w"]}}]}),
        ({"k": "a", "m": "b", "v": 1}, {"k": "b", "m": "a", "v": 1, "w": 1}, {"k": "b", "m": "b", "w": 1}),
        ({"k": "a", "m": "b"}, {"k": "b", "m": "a", "w": 1}, {"k": "b", "m": "a", "v": 1}, {"k": "b", "m": "b"}),
    ),
    Example(closed({"k": {"$ref": "#/$defs/k"}, "v": INT}, ["k"], {"$defs": {"k": {"enum": ["a", "b", "c"]}}, "allOf": [{"if": _kind("a"), "then": {"required": ["v"]}}, {"if": _kind("b"), "then": {"properties": {"v": False}}}]}), ({"k": "a", "v": 1}, {"k": "b"}, {"k": "c"}, {"k": "c", "v": 1}), ({"k": "a"}, {"k": "b", "v": 1}, {"k": "d"})),
    Example(_KV | {"allOf": [{"if": _kind("a"), "then": _V_STR}, {"if": _kind("b"), "then": _V_INT}, {"properties": {"v": {"not": {"const": "x"}}}}]}, ({"k": "a", "v": "y"}, {"k": "c", "v": "y"}), ({"k": "a", "v": "x"}, {"k": "a", "v": 1}, {"k": "b", "v": "y"})),
    Example(_KV | {"allOf": [{"if": _kind("a"), "then": _V_STR, "title": "t"}, {"if": _kind("b"), "then": _V_INT, "required": ["v"]}]}, ({"k": "a", "v": "x"}, {"k": "b", "v": 1}, {"k": "c", "v": "x"}), ({"k": "a", "v": 1}, {"k": "b", "v": "x"})),
    Example({"allOf": [{"if": _kind("a"), "then": {"required": ["v"]}}, {"if": _kind("b"), "then": {"required": ["w"]}}], "type": ["object", "null"]}, (None, {"k": "a", "v": 1}, {"k": "b", "w": 1}, {"k": "c"}), ({"k": "a"}, {"k": "b", "v": 1})),
    Example(_KV | {"allOf": [{"if": {"properties": {"k": {"const": "a"}, "v": {"const": "x"}}}, "then": False}, {"if": _kind("b"), "then": _V_INT}]}, ({"k": "a", "v": "y"}, {"k": "b", "v": 1}, {"k": "c", "v": "x"}), ({"k": "a", "v": "x"}, {"k": "b", "v": "x"})),
    Example(closed({"k": {"enum": [1, 2]}, "v": INT}, ["k"], {"allOf": [{"if": _kind(1), "then": {"required": ["v"]}}, {"if": _kind(2), "then": {"properties": {"v": False}}}]}), ({"k": 1, "v": 1}, {"k": 2}), ({"k": 1}, {"k": 2, "v": 1}), is_hard=True),
)  # fmt: skip

CHOICES = (
    Example({"allOf": [closed({"a": INT}, ["a"]), {"properties": {"a": {"minimum": 5}}}]}, ({"a": 5},), ({"a": 4}, {}, _BOTH)),
    Example(closed({"a": INT}, ["a"], {"anyOf": [{"properties": {"a": {"const": n}}} for n in (1, 2)]}), ({"a": 1}, {"a": 2}), ({"a": 3}, {})),
    Example({"anyOf": [INT, False]}, (1,), ("a",)),
    Example({"allOf": [True, INT]}, (1,), ("a",)),
    Example({"type": ["integer", "null"], "anyOf": [{"minimum": 3}, NULL]}, (3, None), (2, "a")),
    Example({"oneOf": [STR, INT, NULL]}, ("a", 1, None), (True, [], 1.5)),
    Example({"oneOf": [INT, False]}, (1,), ("a",)),
    Example({"oneOf": [INT, {"type": "number"}]}, (1.5,), (1, 2), is_hard=True),
    Example({"oneOf": [_OBJECT, closed({"a": INT}, ["a"])]}, ({"b": 1},), ({"a": 1},), is_hard=True),
    Example({"oneOf": [{"enum": ["a", "b"]}, {"enum": ["b", "c"]}]}, ("a", "c"), ("b", "d"), is_hard=True),
    Example({"oneOf": [{"enum": ["a", "b"]}, {"const": "c"}]}, ("a", "b", "c"), ("d", 1)),
    Example({"oneOf": [{"const": 1}, {"const": True}]}, (1, True), (0, False), is_hard=True),
    Example(closed(_AB, (), {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}), (_A, _B), ({}, _BOTH)),
    Example(closed({"a": INT, "b": INT, "c": INT}, (), {"oneOf": [{"required": [key]} for key in "abc"]}), (_A, _B, {"c": 1}), ({}, _BOTH, {"a": 1, "c": 1}, {"b": 1, "c": 1})),
    Example(closed({"a": INT, "b": INT, "c": INT}, (), {"oneOf": [{"required": ["a", "c"]}, {"required": ["b", "c"]}]}), ({"a": 1, "c": 1}, {"b": 1, "c": 1}), ({}, {"c": 1}, {"a": 1, "b": 1, "c": 1})),
    Example({"oneOf": [closed({"t": {"const": "a"}, "x": INT}, ["t", "x"]), closed({"t": {"enum": ["b", "c"]}}, ["t"])]}, ({"t": "a", "x": 1}, {"t": "b"}, {"t": "c"}), ({"t": "a"}, {"t": "b", "x": 1}, {"t": "d"})),
    Example({"oneOf": [closed({"a": INT}, ["a"]), closed({"b": INT}, ["b"])]}, (_A, _B), (_BOTH, {})),
    Example({"oneOf": [_OBJECT | {"properties": {"a": INT}, "required": ["a"]}, _OBJECT | {"properties": {"b": INT}, "required": ["b"]}]}, (_A, _B), (_BOTH, {}, {"a": "x"})),
    Example({"oneOf": [{"properties": {"k": {"const": 1}}}, {"properties": {"k": {"const": 2}}}]}, ({"k": 1}, {"k": 2}), ({}, {"k": 3}, "a"), is_hard=True),
    Example({"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": {"a": closed({"k": {"const": 1}}, ["k"]), "b": closed({"k": {"const": 2}, "n": NULL}, ["k"])}}, ({"k": 1}, {"k": 2}, {"k": 2, "n": None}), ({"k": 3}, {"k": 1, "n": None})),
    Example({"oneOf": [{"allOf": [_OBJECT | _kind(1), {"required": ["x"]}]}, {"allOf": [_OBJECT | _kind(2)]}]}, ({"k": 1, "x": 1}, {"k": 2}), ({"k": 1}, {"k": 3}, {})),
    Example({"oneOf": [{"anyOf": [{"const": "a"}, {"const": "b"}]}, {"enum": ["c"]}]}, ("a", "b", "c"), ("d",)),
    Example({"oneOf": [{"enum": ["c"]}, {"oneOf": [{"const": "a"}, {"const": "b"}]}]}, ("a", "b", "c"), ("d",)),
    Example({"oneOf": [{"anyOf": [{"const": "a"}, {"const": "c"}]}, {"enum": ["c"]}]}, ("a",), ("c", "d"), is_hard=True),
    Example({"oneOf": [_OBJECT | {"properties": {"k": closed({"j": {"const": number}}, ["j"])}, "required": ["k"]} for number in (1, 2)]}, ({"k": {"j": 1}}, {"k": {"j": 2}}), ({"k": {"j": 3}}, {})),
    Example({"oneOf": [_OBJECT | _kind(1), _OBJECT | {"properties": {"k": {"const": 1}, "m": {"const": 2}}, "required": ["k", "m"]}]}, ({"k": 1},), ({"k": 1, "m": 2}, {"m": 2}), is_hard=True),
    Example({"oneOf": [_OBJECT | {"required": ["a"]}, _OBJECT | {"additionalProperties": False, "patternProperties": {"^a": INT}}]}, ({"a": "x"}, {}), (_A,), is_hard=True),
)  # fmt: skip

_ENDLESS = _OBJECT | {"properties": {"x": {"$ref": "#/$defs/e"}}, "required": ["x"]}
_LIST = {"type": "array", "prefixItems": [{"$ref": "#/$defs/e"}], "minItems": 1}
_LONG_LIST = {"type": "array", "items": {"$ref": "#/$defs/e"}, "minItems": 1}
_CALLED = {
    "properties": {"$anchor": {"enum": ["a"]}, "$id": {"enum": ["#b"]}},
    "type": "object",
    "additionalProperties": False,
}

REFERENCES = (
    Example({"anyOf": [{"enum": [1]}, {"type": "array", "items": {"$ref": "#/anyOf/0"}}]}, (1, [1], []), (2, [2], [[]])),
    Example({"$id": "https://a.example/s", "$defs": {"a": {"enum": [1]}}, "$ref": "https://a.example/s#/$defs/a"}, (1,), (2,)),
    Example({"$id": "https://a.example/s#", "$defs": {"a": {"enum": [1]}}, "$ref": "https://a.example/s#/$defs/a"}, (1,), (2,)),
    Example({"$schema": DRAFT_4, "id": "https://a.example/s", "definitions": {"a": {"enum": [1]}}, "allOf": [{"$ref": "https://a.example/s#/definitions/a"}]}, (1,), (2,)),
    Example({"$schema": DRAFT_7, "definitions": {"n": {"$id": "#here", "enum": [1]}}, "allOf": [{"$ref": "#here"}]}, (1,), (2,)),
    Example({"$schema": DRAFT_4, "definitions": {"n": {"id": "#here", "enum": [1]}}, "allOf": [{"$ref": "#here"}]}, (1,), (2,)),
    Example({"anyOf": [{"$ref": "#a"}], "$defs": {"enum": {"enum": [{"$anchor": "a", "type": "null"}]}, "schema": {"$anchor": "a", "type": "boolean"}, "const": {"const": {"$anchor": "a", "type": "null"}}}}, (True, False), (None, 1)),
    Example(_CALLED, ({"$anchor": "a"}, {"$id": "#b"}), ({"$anchor": "b"}, {"$id": "a"})),
    Example({"properties": {"enum": {"$anchor": "e", "enum": [1]}, "x": {"$ref": "#e"}}, "type": "object"}, ({"x": 1}, {"enum": 1}), ({"x": 2}, {"enum": 2})),
    Example({"$schema": DRAFT_7, "definitions": {"a": INT}} | closed({"p": {"$ref": "#/definitions/a", "minimum": 3}}), ({"p": 1}, {}), ({"p": "x"},)),
    Example({"$schema": DRAFT_6, "definitions": {"a": INT}} | closed({"p": {"$ref": "#/definitions/a", "minimum": 3}}), ({"p": 1}, {}), ({"p": "x"},)),
    Example({"$schema": DRAFT_2019, "$defs": {"a": INT}} | closed({"p": {"$ref": "#/$defs/a", "minimum": 3}}), ({"p": 3}, {}), ({"p": "x"}, {"p": 2})),
    Example({"$defs": {"a": INT, "b": {"$ref": "#/$defs/a"}}, "type": "array", "items": {"$ref": "#/$defs/b"}, "prefixItems": [{"$ref": "#/$defs/a"}]}, ([], [1], [1, 2]), (["a"], [1, "a"])),
    Example({"$defs": {"n": closed({"next": {"anyOf": [NULL, {"$ref": "#/$defs/n"}]}}, ["next"])}, "$ref": "#/$defs/n"}, ({"next": None}, {"next": {"next": None}}), ({}, {"next": {}}, None)),
    Example(closed({"c": {"type": "array", "items": {"$ref": "#"}}}, ["c"]), ({"c": []}, {"c": [{"c": []}]}), ({}, {"c": [{}]}, {"c": [1]})),
    Example({"anyOf": [{"$ref": "#/$defs/e"}, NULL], "$defs": {"e": _ENDLESS}}, (None,), ({"x": None}, {}, 1)),
    Example({"anyOf": [{"$ref": "#/$defs/e"}, NULL], "$defs": {"e": _LIST}}, (None,), ([], [None], 1)),
    Example({"anyOf": [{"$ref": "#/$defs/e"}, NULL], "$defs": {"e": _LONG_LIST}}, (None,), ([], [[]], 1)),
    Example({"anyOf": [{"$ref": "#/$defs/e"}, NULL], "$defs": {"e": _LONG_LIST | {"minItems": 0}}}, (None, [], [[]]), (1, [None])),
    Example({"anyOf": [{"$ref": "#/$defs/e"}, NULL], "$defs": {"e": {"type": "array", "prefixItems": [INT, {"$ref": "#/$defs/e"}], "minItems": 1}}}, (None, [1]), ([], [1, 1], ["a"])),
    Example({"anyOf": [{"$ref": "#/$defs/e"}, NULL], "$defs": {"e": {"allOf": [_ENDLESS]}}}, (None,), ({"x": None}, {})),
    Example({"anyOf": [{"$ref": "#/$defs/e"}, NULL], "$defs": {"e": {"type": ["object"], "properties": {"x": {"$ref": "#/$defs/e"}}, "required": ["x"]}}}, (None,), ({"x": None}, {})),
    Example(closed({"a": INT, "x": {"$ref": "#/$defs/e"}}, (), {"$defs": {"e": _ENDLESS}}), ({}, _A), ({"x": 1}, {"x": {}})),
    Example({"type": "object", "additionalProperties": {"$ref": "#/$defs/e"}, "$defs": {"e": _ENDLESS}}, ({},), ({"x": 1}, {"x": {}})),
    Example({"type": "object", "patternProperties": {"^x": {"$ref": "#/$defs/e"}}, "additionalProperties": BOOL, "$defs": {"e": _ENDLESS}}, ({}, {"a": True}), ({"x": True}, {"a": 1})),
    Example({"type": "array", "items": {"$ref": "#/$defs/e"}, "$defs": {"e": _ENDLESS}}, ([],), ([1], [{}])),
    Example({"properties": {"a": {"$schema": DRAFT_4, "const": 1}}, "type": "object"}, ({},), (1,), is_hard=True),
)  # fmt: skip

COMBINED = (*NEGATED, *CONDITIONS, *CHOICES, *REFERENCES)
