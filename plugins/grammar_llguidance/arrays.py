"""Rewrites the JSON Schema keywords of arrays."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

from .document import refused, step

MAX_ITEMS = 500  # each item takes space in the grammar
_MAX_CHOICES = 300  # largest number of arrays that `distinct` lists

Rewrite = Callable[[Any, str], Any]


def count(own: dict[str, Any], keyword: str, place: str) -> int | None:
    """Return the value of a keyword that must be a non-negative integer; None if the keyword is missing.

    Raises:
        RequestError: the value is not a non-negative integer.
    """
    value = own.get(keyword)
    if value is None and keyword not in own:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise refused(place, keyword, f"it must be an integer of at least 0, not {value!r}")
    return value


def array_keywords(own: dict[str, Any], place: str, draft: int, rewrite: Rewrite) -> dict[str, Any]:
    """Rewrite array keywords to the latest draft's `items`, `prefixItems`, `minItems` and `maxItems`.

    Args:
        own: keywords of the client's schema.
        place: JSON pointer to the schema.
        draft: number of the schema's draft.
        rewrite: function that rewrites a subschema at a pointer.
    """
    out: dict[str, Any] = {}
    prefix, rest = "prefixItems", "items"
    if draft < 2020 and isinstance(own.get("items"), list):
        prefix, rest = "items", "additionalItems"
    if prefix in own and (draft == 2020 or rest == "additionalItems"):
        if not isinstance(own[prefix], list):
            raise refused(place, prefix, "it must be an array of schemas")
        out["prefixItems"] = [rewrite(item, step(place, prefix, i)) for i, item in enumerate(own[prefix])]
    if rest in own:
        if isinstance(own[rest], list):
            raise refused(
                place,
                rest,
                "in this draft it is one schema; write 'prefixItems', or name a draft by '$schema'",
            )
        out["items"] = rewrite(own[rest], step(place, rest))
    elif "unevaluatedItems" in own:
        out["items"] = _unevaluated(own, place, rewrite)
    low, high = count(own, "minItems", place), count(own, "maxItems", place)
    if low is not None and low > MAX_ITEMS:
        raise refused(place, "minItems", f"it is {low}; the limit is {MAX_ITEMS}")
    if low:
        out["minItems"] = low
    if high is not None:
        out["maxItems"] = min(high, MAX_ITEMS)
    return out


def _unevaluated(own: dict[str, Any], place: str, rewrite: Rewrite) -> Any:
    found = rewrite(own["unevaluatedItems"], step(place, "unevaluatedItems"))
    if found not in (True, {}) and any(
        k in own for k in ("$ref", "allOf", "anyOf", "oneOf", "if", "contains")
    ):
        raise refused(
            place, "unevaluatedItems", "it cannot be combined with other schemas for the same array"
        )
    return found


def contains(own: dict[str, Any], place: str, rewrite: Rewrite) -> dict[str, Any]:
    """Return a schema that enforces `contains`, by requiring that the first item matches."""
    least = count(own, "minContains", place)
    if "maxContains" in own:
        raise refused(place, "maxContains", "a grammar does not count items of a kind")
    if least == 0:
        return {}
    if least is not None and least > 1:
        raise refused(place, "minContains", "a grammar does not count items of a kind")
    return {"prefixItems": [rewrite(own["contains"], step(place, "contains"))], "minItems": 1}


def distinct(values: list[Any] | None, longest: int | None, place: str) -> Any:
    """Return a schema of arrays without equal items, to enforce `uniqueItems`.

    Args:
        values: all possible values of items; None: unknown.
        longest: largest number of items; None: no limit.
        place: JSON pointer to the schema.

    Raises:
        RequestError: the possible values are unknown or too many.
    """
    if longest is not None and longest <= 1:
        return True
    if values is None:
        raise refused(
            place,
            "uniqueItems",
            "a grammar does not remember what was written; it is held to only where the items are an 'enum' of a few "
            "values",
        )
    unique = list({json.dumps(value, sort_keys=True): value for value in values}.values())
    sizes = range(min(len(unique), longest if longest is not None else len(unique)) + 1)
    for choose in (itertools.permutations, itertools.combinations):
        # If there are too many permutations, only allow items in the order of the enum.
        arrays = list(
            itertools.islice(
                itertools.chain.from_iterable(choose(unique, size) for size in sizes), _MAX_CHOICES + 1
            )
        )
        if len(arrays) <= _MAX_CHOICES:
            return {"enum": [list(array) for array in arrays]}
    raise refused(
        place, "uniqueItems", f"its {len(unique)} values make too many arrays; 8 values are few enough"
    )
