"""Rewrites the JSON Schema keywords of objects."""

from __future__ import annotations

import re
from typing import Any

from .arrays import Rewrite, count
from .document import refused, step
from .numbers import check_text
from .pattern import PatternError, translate

_IN_PLACE = ("$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "$dynamicRef", "$recursiveRef")


def names(own: dict[str, Any], keyword: str, place: str) -> list[str]:
    """Return the value of a keyword that must be an array of names; [] if the keyword is missing."""
    found = own.get(keyword, [])
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise refused(place, keyword, "it must be an array of names")
    return [check_text(name, keyword, place) for name in found]


def mapping(own: dict[str, Any], keyword: str, place: str) -> dict[str, Any]:
    """Return the value of a keyword that must be an object; {} if the keyword is missing."""
    found = own.get(keyword, {})
    if not isinstance(found, dict):
        raise refused(place, keyword, "it must be an object")
    return found


def object_keywords(own: dict[str, Any], place: str, rewrite: Rewrite) -> tuple[dict[str, Any], list[Any]]:
    """Rewrite a schema's object keywords; return them, and further schemas for its `allOf`."""
    out: dict[str, Any] = {}
    if properties := mapping(own, "properties", place):
        out["properties"] = {
            check_text(name, "properties", place): rewrite(inner, step(place, "properties", name))
            for name, inner in properties.items()
        }
    if patterns := mapping(own, "patternProperties", place):
        out["patternProperties"] = _patterns(patterns, place, rewrite)
    if "additionalProperties" in own:
        out["additionalProperties"] = rewrite(
            own["additionalProperties"], step(place, "additionalProperties")
        )
        if "unevaluatedProperties" in own and out["additionalProperties"] not in (True, False, {}):
            # Validators disagree whether these properties count as evaluated, so require both schemas.
            out["additionalProperties"] = {
                "allOf": [out["additionalProperties"], _unevaluated(own, place, rewrite)]
            }
    elif "unevaluatedProperties" in own:
        out["additionalProperties"] = _unevaluated(own, place, rewrite)
    if required := names(own, "required", place):
        out["required"] = list(dict.fromkeys(required))
    if "propertyNames" in own:
        _narrow_names(own, out, place)
    return out, _sizes(own, out, place)


def _patterns(patterns: dict[str, Any], place: str, rewrite: Rewrite) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pattern, inner in patterns.items():
        try:
            # Exact, because a key that matches for validators must not count as an additional property here.
            written = translate(pattern, exact=True)
        except PatternError as error:
            raise refused(place, "patternProperties", f"{pattern!r}: {error}") from error
        if written in found:
            raise refused(place, "patternProperties", f"{pattern!r} has the meaning of another one")
        found[written] = rewrite(inner, step(place, "patternProperties", pattern))
    return found


def _unevaluated(own: dict[str, Any], place: str, rewrite: Rewrite) -> Any:
    found = rewrite(own["unevaluatedProperties"], step(place, "unevaluatedProperties"))
    if found not in (True, {}) and any(keyword in own for keyword in _IN_PLACE):
        raise refused(
            place,
            "unevaluatedProperties",
            "it cannot be combined with other schemas for the same object; write 'additionalProperties' in each",
        )
    return found


def _narrow_names(own: dict[str, Any], out: dict[str, Any], place: str) -> None:
    """Restrict the rewritten keywords in `out` so that all keys match `propertyNames`."""
    rule = own["propertyNames"]
    rule = {} if rule is True else rule
    if not isinstance(rule, dict) or set(rule) - {
        "type",
        "pattern",
        "minLength",
        "maxLength",
        "enum",
        "const",
    }:
        raise refused(place, "propertyNames", "only a pattern, lengths and an enum are supported in it")
    if rule.get("type", "string") != "string":
        raise refused(place, "propertyNames", "names are strings")
    fits = _name_test(rule, place)
    properties = out.get("properties", {})
    for name in {*properties, *out.get("required", ())}:
        if not fits(name):
            out.setdefault("properties", {})[name] = False
    inner = out.get("additionalProperties", True)
    if (inner is False and "patternProperties" not in out) or not rule or set(rule) == {"type"}:
        return
    if "patternProperties" in out:
        raise refused(place, "propertyNames", "it cannot be combined with 'patternProperties'")
    out["additionalProperties"] = False
    if "enum" in rule or "const" in rule:
        for name in rule.get("enum", [rule.get("const")]):
            if isinstance(name, str) and fits(name):
                out.setdefault("properties", {}).setdefault(check_text(name, "propertyNames", place), inner)
        return
    try:
        low, high = count(rule, "minLength", place) or 0, count(rule, "maxLength", place)
        lengths = f"^(?s:.{{{low},{'' if high is None else high}}})$"
        if "pattern" in rule and (low or high is not None):
            raise refused(place, "propertyNames", "a pattern and lengths together are not supported")
        out["patternProperties"] = {translate(rule["pattern"]) if "pattern" in rule else lengths: inner}
    except PatternError as error:
        raise refused(place, "propertyNames", str(error)) from error


def _name_test(rule: dict[str, Any], place: str) -> Any:
    pattern = rule.get("pattern", "")
    if not isinstance(pattern, str):
        raise refused(place, "propertyNames", "a pattern is a string")
    try:
        found = re.compile(pattern)
    except re.error as error:
        raise refused(place, "propertyNames", str(error)) from error
    low, high = count(rule, "minLength", place), count(rule, "maxLength", place)

    def fits(name: str) -> bool:
        return (
            found.search(name) is not None
            and (low is None or len(name) >= low)
            and (high is None or len(name) <= high)
            and name in rule.get("enum", [name])
            and name == rule.get("const", name)
        )

    return fits


def _sizes(own: dict[str, Any], out: dict[str, Any], place: str) -> list[Any]:
    """Set `minProperties` and `maxProperties` in `out`; return further schemas for `allOf`.

    Raises:
        RequestError: a grammar cannot enforce these limits.
    """
    low, high = count(own, "minProperties", place) or 0, count(own, "maxProperties", place)
    required = out.get("required", [])
    optional = [
        name
        for name, inner in out.get("properties", {}).items()
        if name not in required and inner is not False
    ]
    also: list[Any] = []
    missing = low - len(required)
    if missing > 1:
        # A grammar may write an additional key twice, which then counts only once.
        raise refused(
            place,
            "minProperties",
            f"it is {low}, but only {len(required)} are 'required'; at most one more can be",
        )
    if missing == 1 and optional:
        also.append({"anyOf": [{"required": [name]} for name in optional]})
    elif missing == 1:
        out["minProperties"] = low
    if high is not None:
        closed = out.get("additionalProperties") is False and "patternProperties" not in out
        spare = high - len(required)
        if optional and spare <= 0:
            out["properties"] |= dict.fromkeys(optional, False)
        elif optional and not (closed and (spare == 1 or spare >= len(optional))):
            raise refused(
                place,
                "maxProperties",
                "it is supported where all of 'properties' are 'required', or no others allowed",
            )
        if not (closed and spare >= len(optional)):
            out["maxProperties"] = high
    return also
