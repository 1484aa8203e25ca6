"""The keywords of arrays."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

from .document import refused, step

MAX_ITEMS = 500  # each is a part of the grammar
_MAX_CHOICES = 300  # distinct arrays of distinct values that may be listed

Rewrite = Callable[[Any, str], Any]


def count(own: dict[str, Any], keyword: str, place: str) -> int | None:
    """Return a keyword's value, which must be a count; None if it is not there."""
    value = own.get(keyword)
    if value is None and keyword not in own:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise refused(place, keyword, f"it must be an integer of at least 0, not {value!r}")
    return value


def array_keywords(own: dict[str, Any], place: str, draft: int, rewrite: Rewrite) -> dict[str, Any]:
    """Return `items`, `prefixItems`, `minItems` and `maxItems` in the form of the latest draft."""
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
    """Return a schema of arrays whose first item is the one that `contains` asks for."""
    least = count(own, "minContains", place)
    if "maxContains" in own:
        raise refused(place, "maxContains", "a grammar does not count items of a kind")
    if least == 0:
        return {}
    if least is not None and least > 1:
        raise refused(place, "minContains", "a grammar does not count items of a kind")
    return {"prefixItems": [rewrite(own["contains"], step(place, "contains"))], "minItems": 1}


def distinct(values: list[Any] | None, longest: int | None, place: str) -> Any:
    """Return a schema of arrays without equal items, for `uniqueItems`.

    Args:
        values: all that the items can be, None if that is not known.
        longest: most items.
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
        # Where all orders are too many, the items come in the order of the enum.
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
