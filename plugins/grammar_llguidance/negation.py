"""Negates schemas, for `not` and `if`.

A negated schema is of the same JSON Schema draft as the client's schema. It may match fewer values than the
exact negation, but never more.
"""

from __future__ import annotations

from typing import Any

from .document import Document, refused, step
from .overlap import TYPES, type_of
from .pattern import all_but

_MAX_WORDS = 50
_SAYS_NOTHING = {"then", "else", "additionalItems", "minContains", "maxContains", "format"}


class Negation:
    """Negates schemas of one document."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def negate(self, schema: Any, place: str, depth: int = 0) -> Any:
        """Return a schema that matches only values that the given schema forbids.

        Raises:
            RequestError: the negation cannot be expressed.
        """
        if isinstance(schema, bool):
            return not schema
        if not isinstance(schema, dict) or depth > 10:
            raise refused(place, "not", "a schema in it is not one, or refers to itself")
        dialect = self._document.dialect
        if "$ref" in schema and dialect.ref_stands_alone:
            schema = {"$ref": schema["$ref"]}
        keywords = [key for key in schema if key in dialect.keywords and key not in _SAYS_NOTHING]
        # A value does not match the schema if it violates at least one keyword.
        return _any([self._one(key, schema, step(place, key), depth) for key in keywords])

    def _one(self, keyword: str, schema: dict[str, Any], place: str, depth: int) -> Any:
        value = schema[keyword]
        if keyword == "$ref":
            pointer = self._document.locate(value, place)
            return self.negate(self._document.at(pointer, place), pointer, depth + 1)
        if keyword == "not":
            return value
        if keyword in ("anyOf", "allOf") and isinstance(value, list):
            parts = [self.negate(part, step(place, i), depth + 1) for i, part in enumerate(value)]
            return _any(parts) if keyword == "allOf" else {"allOf": parts}
        if keyword == "type":
            return _not_types(value)
        if keyword == "required" and isinstance(value, list):
            return _any([{"type": "object", "properties": {key: _FALSE}} for key in value])
        if keyword == "properties" and isinstance(value, dict):
            return _any(
                [
                    {
                        "type": "object",
                        "required": [key],
                        "properties": {key: self.negate(inner, step(place, key), depth + 1)},
                    }
                    for key, inner in value.items()
                ]
            )
        if keyword in ("const", "enum"):
            return _not_values([value] if keyword == "const" else value, place)
        if keyword == "minLength" and isinstance(value, int) and value > 0:
            return {"type": "string", "maxLength": value - 1}
        if keyword == "maxLength" and isinstance(value, int):
            return {"type": "string", "minLength": value + 1}
        raise refused(
            place, keyword, "it stands in a 'not' or 'if', and what it forbids cannot be said as a grammar"
        )


# In place of `false`: draft 4 has no boolean schemas.
_FALSE: dict[str, Any] = {"enum": []}


def _any(parts: list[Any]) -> Any:
    parts = [part for part in parts if part is not False]
    if not parts:
        return _FALSE
    return parts[0] if len(parts) == 1 else {"anyOf": parts}


def _not_types(named: Any) -> Any:
    names = {named} if isinstance(named, str) else set(named)
    rest = TYPES - names
    if "integer" in names:
        rest -= {"number"}
    return {"type": sorted(rest)} if rest else _FALSE


def _not_values(values: list[Any], place: str) -> Any:
    kinds = {type_of(value) for value in values}
    if kinds & {"number", "array", "object"}:
        raise refused(
            place,
            "enum",
            "it stands in a 'not' or 'if', where only strings, booleans and null can be left out",
        )
    parts: list[Any] = [{"type": sorted(TYPES - kinds)}]
    if "boolean" in kinds:
        parts.append({"enum": [flag for flag in (True, False) if not any(flag is value for value in values)]})
    words = [value for value in values if isinstance(value, str)]
    if words:
        if len(words) > _MAX_WORDS:
            raise refused(
                place, "enum", f"it has more than {_MAX_WORDS} strings, and stands in a 'not' or 'if'"
            )
        parts.append({"type": "string", "pattern": all_but(words)})
    return _any(parts)
