"""Proves that two schemas are disjoint, that is, that no value matches both, as `oneOf` requires.

"Disjoint" is proven; "not disjoint" only means that no proof was found.
"""

from __future__ import annotations

from typing import Any

from .document import Document

TYPES = frozenset({"null", "boolean", "number", "string", "array", "object"})
_MAX_DEPTH = 8


class Disjointness:
    """Proves that schemas of one document are disjoint, and derives facts about their values."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def disjoint(self, a: Any, b: Any, depth: int = 0) -> bool:
        """Return whether it is certain that no value matches both schemas."""
        if depth > _MAX_DEPTH:
            return False
        all_a, all_b = self._parts(a), self._parts(b)
        if any(self._parts_differ(x, y, depth) for x in all_a for y in all_b):
            return True
        return self._branches_differ(all_a, b, depth) or self._branches_differ(all_b, a, depth)

    def required(self, schema: Any) -> set[str]:
        """Return keys that every object must have to match a schema."""
        return {key for part in self._parts(schema) for key in _names(part)}

    def types(self, schema: Any) -> frozenset[str]:
        """Return the types that a schema's values can have. Integers have the type "number"."""
        possible = TYPES
        for part in self._parts(schema):
            possible &= _types_of(part)
        return possible

    def values(self, schema: Any) -> list[Any] | None:
        """Return a list that includes all values of a schema; None if the schema does not enumerate them."""
        for part in self._parts(schema):
            if (values := self._values(part)) is not None:
                return values
        return None

    def member(self, schema: Any, key: str) -> Any:
        """Return a schema that a property's value is certain to match, and that lists its possible values.

        Returns True, which allows any value, if there is no such schema.
        """
        found = [_member(part, key) for part in self._parts(schema)]
        return next((inner for inner in found if self.values(inner) is not None), True)

    def is_only(self, schema: dict[str, Any], keywords: set[str]) -> bool:
        """Return whether a schema has no keywords other than these. Ignores annotations."""
        return not (schema.keys() & self._document.dialect.keywords) - keywords

    def _parts(self, schema: Any, depth: int = 0) -> list[dict[str, Any]]:
        """Return the schemas that a value must all match: this one, its references, and its `allOf`."""
        if schema is False:
            return [{"enum": []}]
        if not isinstance(schema, dict) or depth > _MAX_DEPTH:
            return []
        parts = []
        if "$ref" in schema:
            target = self._document.at(self._document.locate(schema["$ref"], ""))
            parts = self._parts(target, depth + 1)
            if self._document.dialect.ref_stands_alone:
                return parts
        parts.append({k: v for k, v in schema.items() if k in self._document.dialect.keywords})
        for member in schema["allOf"] if isinstance(schema.get("allOf"), list) else ():
            parts += self._parts(member, depth + 1)
        return parts

    def _parts_differ(self, a: dict[str, Any], b: dict[str, Any], depth: int) -> bool:
        types = _types_of(a) & _types_of(b)
        if not types:
            return True
        values_a, values_b = self._values(a), self._values(b)
        if values_a is not None and values_b is not None and not any(v in values_b for v in values_a):
            # In Python, True == 1. So this may miss a proof, but never finds a wrong one.
            return True
        return types == {"object"} and self._members_differ(a, b, depth)

    def _members_differ(self, a: dict[str, Any], b: dict[str, Any], depth: int) -> bool:
        for key in _names(a) + _names(b):
            inner_a, inner_b = _member(a, key), _member(b, key)
            if self.disjoint(inner_a, inner_b, depth + 1):
                return True
        return False

    def _branches_differ(self, parts: list[dict[str, Any]], other: Any, depth: int) -> bool:
        for part in parts:
            for keyword in ("anyOf", "oneOf"):
                branches = part.get(keyword)
                if isinstance(branches, list) and all(
                    self.disjoint(branch, other, depth + 1) for branch in branches
                ):
                    return True
        return False

    def _values(self, part: dict[str, Any]) -> list[Any] | None:
        if "const" in part:
            return [part["const"]]
        return part["enum"] if isinstance(part.get("enum"), list) else None


def type_of(value: Any) -> str:
    """Return the JSON type of a value. Integers have the type "number"."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    names: dict[Any, str] = {str: "string", list: "array", dict: "object"}
    return names.get(type(value), "number")


def equal(a: Any, b: Any) -> bool:
    """Return whether two values are equal in JSON: 1 equals 1.0, but not true."""
    return bool(a == b) and type_of(a) == type_of(b)


def _types_of(part: dict[str, Any]) -> frozenset[str]:
    named = part.get("type", list(TYPES))
    listed = named if isinstance(named, list) else [named]
    found = {"number" if name == "integer" else name for name in listed if isinstance(name, str)}
    values = [part["const"]] if "const" in part else part.get("enum")
    if isinstance(values, list):
        found &= {type_of(value) for value in values}
    return frozenset(found) & TYPES


def _names(part: dict[str, Any]) -> list[str]:
    """Return the required keys. Ignores malformed ones, which the rewriter refuses."""
    required = part.get("required")
    return [key for key in required if isinstance(key, str)] if isinstance(required, list) else []


def _member(part: dict[str, Any], key: str) -> Any:
    """Return a schema that a property's value is certain to match."""
    properties = part.get("properties")
    if isinstance(properties, dict) and key in properties:
        return properties[key]
    return not (part.get("additionalProperties") is False and not part.get("patternProperties"))
