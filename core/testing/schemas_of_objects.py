"""JSON schemas of objects, with valid and invalid values."""

from __future__ import annotations

from .schema_example import BOOL, DRAFT_6, DRAFT_7, DRAFT_2019, INT, NULL, STR, closed
from .schema_example import SchemaExample as Example

_OBJECT = {"type": "object"}
_INTS = _OBJECT | {"additionalProperties": INT}
_AB = {"a": INT, "b": INT}
_ABC = {"a": INT, "b": INT, "c": INT}
_A, _B, _BOTH = {"a": 1}, {"b": 1}, {"a": 1, "b": 1}
_ALL = {"a": 1, "b": 1, "c": 1}

MEMBERS = (
    Example(closed({"b": INT, "a": STR}, ["b", "a"]), ({"b": 1, "a": "x"},), ({"b": 1}, {"a": "x"}, {"b": "x", "a": "x"})),
    Example({"properties": {"a": INT}}, ({"a": 1}, {}, "x", 5, [1]), ({"a": "x"},)),
    Example({"required": ["a"]}, ({"a": "x"}, 5, "x"), ({}, {"b": 1})),
    Example({"properties": {"a": INT}, "maxLength": 1, "maximum": 5, "items": INT}, ({"a": 1}, "x", 5, [1]), ({"a": "x"}, "xy", 6, ["x"])),
    Example(closed({'"': INT, "\\": INT, "ü": INT, "a b": INT}), ({'"': 1}, {"\\": 1}, {"ü": 1}, {"a b": 1}), ({"u": 1}, {"ü": "x"})),
    Example(_OBJECT | {"properties": {'"': False, "\\": False, "a": False}, "additionalProperties": NULL}, ({}, {"b": None}), ({"a": None}, {"b": 1})),
    Example(_OBJECT | {"properties": {"a": INT}, "additionalProperties": STR}, ({}, {"a": 1}, {"b": "x"}, {"a": 1, "b": "x"}), ({"a": "x"}, {"b": 1})),
    Example(_OBJECT | {"additionalProperties": True}, ({}, {"a": 1}), (1,)),
    Example(_OBJECT | {"required": ["a"], "additionalProperties": INT}, ({"a": 1}, {"a": 1, "b": 2}), ({}, {"b": 1}, {"a": "x"})),
    Example(_OBJECT | {"properties": {"\u0001": INT}}, (), ({"\u0001": "x"},), is_hard=True),
    Example(_OBJECT | {"patternProperties": {"^n_": INT, "^s_\\w$": STR}, "additionalProperties": False}, ({"n_1": 1}, {"s_a": "x"}), ({"n_1": "x"}, {"s_a": 1}, {"a": 1})),
    Example(_OBJECT | {"properties": {"n_x": {"minimum": 3}}, "patternProperties": {"^n_": INT}, "additionalProperties": False}, ({"n_x": 4}, {"n_y": 1}), ({"n_x": 1}, {"n_x": "x"}, {"a": 1})),
    Example(_OBJECT | {"patternProperties": {"^\\d+$": INT}, "additionalProperties": NULL}, ({"12": 1}, {"x": None}), ({"12": None}, {"x": 1})),
    Example(_OBJECT | {"patternProperties": {"[^0-9]": INT}, "additionalProperties": NULL}, ({"x": 1}, {"1": None}), ({"x": None}, {"1": 1})),
    Example(_OBJECT | {"patternProperties": {"^\\W$": INT}, "additionalProperties": NULL}, ({"-": 1}, {"x": None}), ({"-": None}, {"x": 1})),
    Example(_OBJECT | {"patternProperties": {"^a": INT}}, ({"a": 1}, {"b": "x"}), ({"a": "x"},)),
    Example(_OBJECT | {"patternProperties": {"a": STR, "b": INT}, "additionalProperties": False}, ({"a": "x"}, {"b": 1}), ({"ab": "x"}, {"ab": 1}, {"c": 1}), is_hard=True),
    Example(_OBJECT | {"patternProperties": {"a{1}": INT, "a": {"minimum": 5}}, "additionalProperties": False}, ({"a": 5},), ({"a": 1}, {"b": 5}), is_hard=True),
    Example(_OBJECT | {"patternProperties": {"^(?!a)": INT}, "additionalProperties": NULL}, ({"b": 1},), ({"b": None}, {"a": 1}), is_hard=True),
    Example(_OBJECT | {"properties": {"a": INT}, "unevaluatedProperties": False}, ({}, {"a": 1}), ({"b": 1}, {"a": "x"})),
    Example(_OBJECT | {"properties": {"a": STR}, "unevaluatedProperties": INT}, ({}, {"a": "x"}, {"b": 1}), ({"b": "x"},)),
    Example(_OBJECT | {"additionalProperties": INT, "unevaluatedProperties": False}, ({},), ({"b": "x"},)),
    Example(_OBJECT | {"additionalProperties": True, "unevaluatedProperties": INT}, ({"b": 1},), (1,)),
    Example(_OBJECT | {"additionalProperties": False, "unevaluatedProperties": INT}, ({},), ({"b": 1},)),
    Example(_OBJECT | {"unevaluatedProperties": True, "allOf": [{"properties": {"a": INT}}]}, ({"a": 1}, {"b": "x"}), ({"a": "x"},)),
    Example(_OBJECT | {"allOf": [{"properties": {"a": INT}}], "unevaluatedProperties": False}, (_A,), (_BOTH, _B), is_hard=True),
    Example(_OBJECT | {"anyOf": [{"properties": {"a": INT}}], "unevaluatedProperties": INT}, (_A,), ({"b": "x"},), is_hard=True),
)  # fmt: skip

NAMES = (
    Example(_INTS | {"propertyNames": True}, ({}, {"a": 1}), ({"a": "x"},)),
    Example(_INTS | {"propertyNames": {}}, ({}, {"a": 1}), ({"a": "x"},)),
    Example(_INTS | {"propertyNames": STR}, ({}, {"a": 1}), ({"a": "x"},)),
    Example(_INTS | {"propertyNames": False}, ({},), ({"a": 1},), is_hard=True),
    Example(_INTS | {"propertyNames": INT}, ({},), ({"a": 1},), is_hard=True),
    Example(_INTS | {"propertyNames": {"not": {"const": "a"}}}, ({"b": 1},), ({"a": 1},), is_hard=True),
    Example(_INTS | {"propertyNames": {"pattern": "^[a-c]{2}$"}}, ({"ab": 1}, {}), ({"a": 1}, {"abc": 1}, {"ab": "x"})),
    Example(_INTS | {"propertyNames": {"pattern": "(?!a)", "maxLength": 1}}, ({},), ({"ab": 1},), is_hard=True),
    Example(_INTS | {"propertyNames": {"pattern": "a", "maxLength": 2}}, ({"a": 1},), ({"b": 1}, {"abc": 1}), is_hard=True),
    Example(_INTS | {"propertyNames": {"pattern": "a", "minLength": 2}}, ({"ab": 1},), ({"a": 1}, {"bc": 1}), is_hard=True),
    Example(_INTS | {"propertyNames": {"maxLength": 2}}, ({"ab": 1}, {"a": 1}), ({"abc": 1},)),
    Example(_INTS | {"propertyNames": {"minLength": 2}}, ({"ab": 1}, {"abcd": 1}), ({"a": 1}, {"": 1})),
    Example(_INTS | {"propertyNames": {"minLength": 1, "maxLength": 2}}, ({"a": 1}, {"ab": 1}), ({"": 1}, {"abc": 1})),
    Example(_INTS | {"propertyNames": {"const": "a"}}, ({}, {"a": 1}), ({"b": 1},)),
    Example(_INTS | {"propertyNames": {"enum": ["a", "bc", 5], "minLength": 2}}, ({"bc": 1}, {}), ({"a": 1}, {"cd": 1})),
    Example(_OBJECT | {"properties": {"z": INT}, "propertyNames": {"enum": ["x", "y"]}}, ({}, {"x": 1}, {"y": "a"}), ({"z": 1}, {"w": 1})),
    Example(_OBJECT | {"properties": {"a": INT, "b": STR}, "propertyNames": {"enum": ["a"]}, "additionalProperties": BOOL}, ({}, {"a": 1}), ({"b": "x"}, {"a": True})),
    Example(closed({"ab": INT, "c": INT}, (), {"propertyNames": {"minLength": 2}}), ({}, {"ab": 1}), ({"c": 1},)),
    Example(closed({"ab": INT, "c": INT}, (), {"propertyNames": {"maxLength": 1}}), ({}, {"c": 1}), ({"ab": 1},)),
    Example(closed({"ab": INT, "c": INT}, (), {"propertyNames": {"pattern": "b"}}), ({}, {"ab": 1}), ({"c": 1},)),
    Example(closed({"ab": INT, "c": INT}, (), {"propertyNames": {"const": "c"}}), ({}, {"c": 1}), ({"ab": 1},)),
    Example(_OBJECT | {"patternProperties": {"^x": INT}, "propertyNames": {"maxLength": 2}}, ({"xa": 1},), ({"xab": 1},), is_hard=True),
    Example(_OBJECT | {"patternProperties": {"^x": INT}, "additionalProperties": False, "propertyNames": {"maxLength": 2}}, ({"xa": 1},), ({"xab": 1}, {"a": 1}), is_hard=True),
    Example(_OBJECT | {"patternProperties": {"^x": INT}, "additionalProperties": False, "propertyNames": STR}, ({"xa": 1},), ({"a": 1},)),
    Example({"propertyNames": {"maxLength": 1}}, ({"a": 1}, "abc", 5), ({"ab": 1},)),
)  # fmt: skip

SIZES = (
    Example(_INTS | {"minProperties": 1}, (_A, _BOTH), ({},)),
    Example(_INTS | {"minProperties": 0}, ({}, _A), (1,)),
    Example(closed(_AB, (), {"minProperties": 1}), (_A, _B, _BOTH), ({},)),
    Example(closed(_ABC, ["a"], {"minProperties": 2}), (_BOTH, {"a": 1, "c": 1}), (_A, {"b": 1, "c": 1})),
    Example(closed(_AB, ["a"], {"minProperties": 1}), (_A, _BOTH), ({}, _B)),
    Example(closed(_AB, ["a", "b"], {"minProperties": 1}), (_BOTH,), (_A,)),
    Example(_INTS | {"required": ["a"], "minProperties": 2}, (_BOTH,), (_A, {})),
    Example(_INTS | {"minProperties": 3}, (_ALL,), (_BOTH, {}), is_hard=True),
    Example(closed(_AB, (), {"minProperties": 2}), (_BOTH,), (_A, _B), is_hard=True),
    Example(closed({"a": INT, "b": False}, (), {"minProperties": 1}), (_A,), ({}, _B)),
    Example(_INTS | {"maxProperties": 2}, ({}, _BOTH), (_ALL,)),
    Example(_INTS | {"maxProperties": 0}, ({},), (_A,)),
    Example(_OBJECT | {"properties": {"a": INT}, "maxProperties": 0}, ({},), (_A, _B)),
    Example(closed(_AB, (), {"maxProperties": 1}), ({}, _A, _B), (_BOTH,)),
    Example(closed(_AB, (), {"maxProperties": 2}), ({}, _A, _BOTH), (_ALL,)),
    Example(closed(_ABC, ["a"], {"maxProperties": 2}), (_A, _BOTH, {"a": 1, "c": 1}), (_ALL, {})),
    Example(closed(_ABC, ["a", "b"], {"maxProperties": 2}), (_BOTH,), (_ALL, _A)),
    Example(closed(_ABC, (), {"maxProperties": 2}), (_BOTH,), (_ALL,), is_hard=True),
    Example(_INTS | {"required": ["a"], "maxProperties": 2}, (_A, _BOTH), (_ALL, {})),
    Example(_INTS | {"required": ["a"], "properties": {"a": INT}, "maxProperties": 1}, (_A,), (_BOTH, {})),
    Example(_OBJECT | {"properties": _AB, "maxProperties": 1}, (_A,), (_BOTH,), is_hard=True),
    Example(_OBJECT | {"properties": {"a": INT}, "patternProperties": {"^x": INT}, "additionalProperties": False, "maxProperties": 1}, (_A,), ({"a": 1, "xa": 1}, {"xa": 1, "xb": 1}), is_hard=True),
    Example({"maxProperties": 1}, (_A, "abc", [1, 2]), (_BOTH,)),
)  # fmt: skip

DEPENDENCIES = (
    Example(closed(_AB, (), {"dependentRequired": {"a": ["b"], "b": []}}), ({}, _B, _BOTH), (_A,)),
    Example(closed(_ABC, (), {"dependentRequired": {"a": ["b", "c"]}}), ({}, _B, _ALL), (_A, _BOTH)),
    Example(closed(_AB, (), {"dependentSchemas": {"a": {"required": ["b"]}}}), ({}, _B, _BOTH), (_A,)),
    Example(closed(_AB, (), {"dependentSchemas": {"a": {"properties": {"b": {"minimum": 5}}}}}), (_A, _B, {"a": 1, "b": 5}), (_BOTH,)),
    Example({"$schema": DRAFT_7} | closed(_AB, (), {"dependencies": {"a": ["b"]}}), ({}, _B, _BOTH), (_A,)),
    Example({"$schema": DRAFT_7} | closed(_AB, (), {"dependencies": {"b": {"properties": {"b": {"minimum": 0}}}}}), ({}, _A, _B), ({"b": -1},)),
    Example({"$schema": DRAFT_7} | closed(_AB, (), {"dependentRequired": {"a": ["b"]}}), (_A, _B), (_ALL,)),
    Example({"$schema": DRAFT_2019} | closed(_AB, (), {"dependencies": {"a": ["b"]}}), (_A, _B), (_ALL,)),
    Example({"$schema": DRAFT_2019} | closed(_AB, (), {"dependentRequired": {"a": ["b"]}}), (_B, _BOTH), (_A,)),
    Example({"$schema": DRAFT_6, "propertyNames": {"maxLength": 1}, "type": "object"}, (_A,), ({"ab": 1},)),
)  # fmt: skip

OBJECTS = (*MEMBERS, *NAMES, *SIZES, *DEPENDENCIES)
