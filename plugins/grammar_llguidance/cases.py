"""Merges several `if`/`then` conditions on the value of one property into one choice among its values.

If n conditions were rewritten one by one, there would be 2ⁿ combinations, most of which cannot occur. This
module works on the client's schemas, and does not depend on how they are rewritten.
"""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import Any

from .overlap import Disjointness, equal

Outcome = tuple[int, str]  # index of a condition in `allOf`, and its keyword that applies: "then" or "else"


@dataclass(frozen=True)
class Case:
    """One of several cases that together cover all objects.

    Attributes:
        guard: schema, in the client's draft, that matches the objects of this case: those whose property has
            certain values, or those that lack the property.
        outcomes: the keywords (`then`, `else`) that apply in this case.
    """

    guard: Any
    outcomes: list[Outcome]


@dataclass(frozen=True)
class _Condition:
    index: int
    key: str
    values: list[Any]
    if_absent: str  # keyword that applies to an object without the property
    keywords: frozenset[str]

    def outcomes(self, is_true: bool) -> list[Outcome]:
        keyword = "then" if is_true else "else"
        return [(self.index, keyword)] if keyword in self.keywords else []


def cases_of(own: dict[str, Any], proofs: Disjointness) -> tuple[list[Case], set[int]]:
    """Return cases that replace conditions in a schema's `allOf`, and the indices of these conditions.

    Returns no cases if no two conditions are about the same property, or if the schema allows types other
    than object.

    Args:
        own: keywords of the schema.
        proofs: disjointness proofs for the schema's document.
    """
    found = [
        condition
        for i, member in enumerate(own["allOf"])
        if (condition := _read(i, member, proofs)) is not None
    ]
    if len(found) < 2 or proofs.types(own) != {"object"}:
        return [], set()
    key = collections.Counter(condition.key for condition in found).most_common(1)[0][0]
    found = [condition for condition in found if condition.key == key]
    if len(found) < 2:
        return [], set()
    known = proofs.values(proofs.member(own, key))
    cases: list[Case] = []
    for value in _distinct([value for condition in found for value in condition.values]):
        if known is None or any(equal(value, other) for other in known):
            outcomes = [o for c in found for o in c.outcomes(any(equal(value, v) for v in c.values))]
            _add(cases, {"enum": [value]}, key, outcomes)
    asked = [value for condition in found for value in condition.values]
    rest = (
        {"not": {"enum": _distinct(asked)}}
        if known is None
        else {"enum": [value for value in known if not any(equal(value, other) for other in asked)]}
    )
    if rest != {"enum": []}:
        _add(cases, rest, key, [o for c in found for o in c.outcomes(False)])
    if key not in proofs.required(own):
        absent = [o for c in found for o in c.outcomes(c.if_absent == "then")]
        cases.append(Case({"properties": {key: False}}, absent))
    return cases, {condition.index for condition in found}


def _add(cases: list[Case], rule: Any, key: str, outcomes: list[Outcome]) -> None:
    cases.append(Case({"properties": {key: rule}, "required": [key]}, outcomes))


def _distinct(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if not any(equal(value, other) for other in found):
            found.append(value)
    return found


def _read(index: int, member: Any, proofs: Disjointness) -> _Condition | None:
    """Return a member of `allOf` as a condition if it tests only the value of one property; else None."""
    if not isinstance(member, dict) or not proofs.is_only(member, {"if", "then", "else"}):
        return None
    asked = member.get("if")
    if not isinstance(asked, dict) or not proofs.is_only(asked, {"type", "properties", "required"}):
        return None
    properties, required = asked.get("properties"), asked.get("required", [])
    if asked.get("type", "object") != "object" or not isinstance(properties, dict) or len(properties) != 1:
        return None
    [(key, rule)] = properties.items()
    if required not in ([], [key]) or not isinstance(rule, dict):
        return None
    if not proofs.is_only(rule, {"const", "enum"}) or ("const" in rule) == ("enum" in rule):
        return None
    values = [rule["const"]] if "const" in rule else rule["enum"]
    if not isinstance(values, list) or not all(isinstance(value, str | bool | None) for value in values):
        return None
    return _Condition(index, key, values, "else" if required else "then", frozenset(member))
