"""Converts a value that a model wrote as bare text to JSON text, according to a JSON schema."""

from __future__ import annotations

import ast
import json
import warnings
from typing import Any

_UNKNOWN = frozenset({"string", "object", "array"})
_PYTHON_NAMES = {"True": "true", "False": "false", "None": "null"}


def kinds_of(schema: Any) -> set[str]:
    """Return the JSON types that a schema allows; string, object and array if it specifies no type."""
    if not isinstance(schema, dict):
        return set(_UNKNOWN)
    if isinstance(schema.get("type"), str):
        return {schema["type"]}
    if isinstance(schema.get("type"), list):
        return {str(kind) for kind in schema["type"]}
    if isinstance(choices := schema.get("anyOf") or schema.get("oneOf"), list):
        return {kind for choice in choices for kind in kinds_of(choice)}
    if isinstance(values := schema.get("enum"), list):
        return {kind for value in values for kind in _kinds(value)[:1]}
    return set(_UNKNOWN)


def to_json(text: str, kinds: set[str]) -> str:
    """Convert bare text to the JSON text of a value that has one of these types.

    If the text has none of these types, returns the text as a JSON string.
    """
    bare = text.strip()
    if kinds != {"string"}:
        for candidate in (_PYTHON_NAMES.get(bare, bare), _from_python(bare)):
            try:
                value = json.loads(candidate, parse_constant=_refuse)
            except (ValueError, RecursionError):
                continue
            if not isinstance(value, str) and not kinds.isdisjoint(_kinds(value)):
                return candidate
    return json.dumps(text, ensure_ascii=False)


def json_of(value: object) -> str:
    """Return the JSON text of a value.

    Lone surrogates, which cannot be encoded as UTF-8, are written as escapes.

    Raises:
        ValueError, TypeError: JSON cannot represent the value.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False)
    return text


def _from_python(text: str) -> str:
    """Convert a Python dict or list literal, which some models write, to JSON text; else return ""."""
    if not text.startswith(("{", "[")):
        return ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about invalid escapes and numbers
            value = ast.literal_eval(text)
        return json_of(value)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return ""


def _kinds(value: object) -> list[str]:
    """Return the JSON schema types of a value, the narrowest first."""
    if value is None:
        return ["null"]
    if isinstance(value, bool):
        return ["boolean"]
    if isinstance(value, int):
        return ["integer", "number"]
    names = {float: "number", str: "string", dict: "object", list: "array"}
    return [names[type(value)]]


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
