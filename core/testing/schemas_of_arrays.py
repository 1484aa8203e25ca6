"""JSON schemas of arrays, with valid and invalid values."""

from __future__ import annotations

from .schema_example import BOOL, DRAFT_4, DRAFT_7, DRAFT_2019, DRAFT_2020, INT, NULL, STR
from .schema_example import SchemaExample as Example

_ARRAY = {"type": "array"}
_SWAPPED = [{"a": 1, "b": 2}, {"b": 2, "a": 1}]

ARRAYS = (
    Example(_ARRAY | {"items": INT, "minItems": 1.0}, ([1], [1, 2]), ([],)),
    Example(_ARRAY | {"items": INT, "minItems": 2}, ([1, 2],), ([], [1])),
    Example(_ARRAY | {"items": INT, "minItems": 0, "maxItems": 0}, ([],), ([1],)),
    Example(_ARRAY | {"items": NULL, "maxItems": 10**9}, ([], [None] * 3), ([1],)),
    Example(_ARRAY | {"minItems": 10**9}, (), ([], [1]), is_hard=True),
    Example({"items": INT, "maxItems": 1}, ([], [1], "ab", 5), ([1, 2], ["a"])),
    Example(_ARRAY, ([], [1, "a", []]), ({}, 1)),
    Example(_ARRAY | {"items": True, "maxItems": 1}, ([], ["a"]), ([1, 2],)),
    Example(_ARRAY | {"items": False}, ([],), ([1],)),
    Example(_ARRAY | {"prefixItems": [INT, STR], "minItems": 1, "items": False}, ([1], [1, "a"]), ([], ["a"], [1, 2], [1, "a", 1])),
    Example(_ARRAY | {"prefixItems": [INT], "minItems": 2}, ([1, 1], [1, "a"]), ([], [1], ["a", "a"])),
    Example(_ARRAY | {"prefixItems": [INT, BOOL], "maxItems": 1}, ([], [1]), ([True], [1, True])),
    Example({"$schema": DRAFT_7} | _ARRAY | {"prefixItems": [STR], "items": INT}, ([], [1], [1, 2]), (["a"],)),
    Example({"$schema": DRAFT_7} | _ARRAY | {"items": [INT]}, ([], [1], [1, "a"]), (["a"],)),
    Example({"$schema": DRAFT_7} | _ARRAY | {"items": INT, "additionalItems": False}, ([1, 2],), (["a"],)),
    Example({"$schema": DRAFT_7} | _ARRAY | {"additionalItems": False}, ([], [1], ["a", 1]), (1,)),
    Example({"$schema": DRAFT_4} | _ARRAY | {"items": [INT, BOOL], "additionalItems": False}, ([1, True], [1]), ([True], [1, True, 1])),
    Example({"$schema": DRAFT_2019} | _ARRAY | {"items": [INT], "additionalItems": BOOL}, ([1], [1, True]), ([True], [1, 2])),
    Example({"$schema": DRAFT_2019} | _ARRAY | {"prefixItems": [STR], "items": INT}, ([1, 2],), (["a"],)),
    Example({"$schema": DRAFT_2020} | _ARRAY | {"additionalItems": False, "items": INT}, ([1, 2],), (["a"],)),
    Example(_ARRAY | {"prefixItems": [INT], "unevaluatedItems": False}, ([], [1]), ([1, 2], ["a"])),
    Example(_ARRAY | {"prefixItems": [INT], "unevaluatedItems": BOOL}, ([1], [1, True]), ([1, 2],)),
    Example(_ARRAY | {"unevaluatedItems": True}, ([], [1]), (1,)),
    Example(_ARRAY | {"items": INT, "unevaluatedItems": False}, ([], [1]), (["a"],)),
    Example(_ARRAY | {"allOf": [{"prefixItems": [INT]}], "unevaluatedItems": True}, ([1], [1, "a"]), (["a"],)),
    Example(_ARRAY | {"allOf": [{"prefixItems": [INT]}], "unevaluatedItems": False}, ([1],), ([1, 2],), is_hard=True),
    Example(_ARRAY | {"contains": {"const": 3}, "unevaluatedItems": BOOL}, ([3], [3, True]), ([], [3, 1]), is_hard=True),
    Example(_ARRAY | {"items": INT, "contains": {"const": 3}, "minContains": 0}, ([], [1], [3]), (["a"],)),
    Example(_ARRAY | {"items": INT, "contains": {"const": 3}, "minContains": 1}, ([3], [3, 1]), ([], [1])),
    Example(_ARRAY | {"items": INT, "contains": {"const": 3}, "minContains": 2}, ([3, 3],), ([3], [], [3, 1]), is_hard=True),
    Example(_ARRAY | {"items": INT, "contains": {"const": 3}, "maxContains": 1}, ([3],), ([3, 3],), is_hard=True),
    Example(_ARRAY | {"items": INT, "contains": {"minimum": 5}, "maxItems": 3}, ([5], [6, 1]), ([], [1])),
    Example({"contains": {"const": 3}}, ("a", 1, [3]), ([], [1])),
    Example(_ARRAY | {"items": STR, "uniqueItems": True, "maxItems": 1}, ([], ["a"]), (["a", "a"],)),
    Example(_ARRAY | {"items": STR, "uniqueItems": False}, ([], ["a", "a"]), ([1],)),
    Example(_ARRAY | {"items": STR, "uniqueItems": True}, (), (["a", "a"],), is_hard=True),
    Example(_ARRAY | {"items": STR, "uniqueItems": True, "maxItems": 2}, (), (["a", "a"],), is_hard=True),
    Example(_ARRAY | {"items": {"enum": [1, 2]}, "uniqueItems": True}, ([], [1], [1, 2], [2, 1]), ([1, 1], [1, 2, 1])),
    Example(_ARRAY | {"items": {"enum": [1, 2, 3]}, "uniqueItems": True, "maxItems": 2}, ([1], [1, 3]), ([1, 1], [1, 2, 3])),
    Example(_ARRAY | {"items": {"enum": [1, 1.0, "a", True]}, "uniqueItems": True}, ([1, "a"], [True]), ([1, 1], ["a", "a"])),
    Example(_ARRAY | {"items": {"enum": list("abcdef")}, "uniqueItems": True, "minItems": 2}, (["a", "b"], list("abcdef")), (["a"], ["a", "a"])),
    Example(_ARRAY | {"items": {"enum": list("abcdefghijkl")}, "uniqueItems": True}, (), (["a", "a"],), is_hard=True),
    Example(_ARRAY | {"items": {"enum": _SWAPPED}, "uniqueItems": True}, ([_SWAPPED[0]],), (_SWAPPED,)),
    Example(_ARRAY | {"items": {"const": "a"}, "uniqueItems": True}, ([], ["a"]), (["a", "a"],)),
    Example({"items": {"enum": [1]}, "uniqueItems": True}, ("x", [1], []), ([1, 1],)),
    Example(_ARRAY | {"prefixItems": [{"enum": [1]}], "items": {"enum": [1, 2]}, "uniqueItems": True}, (), ([1, 1],), is_hard=True),
    Example({"$schema": DRAFT_7} | _ARRAY | {"items": [{"enum": [1, 2]}], "uniqueItems": True}, (), ([1, 1],), is_hard=True),
)  # fmt: skip
