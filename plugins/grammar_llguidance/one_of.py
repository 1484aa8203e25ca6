"""Rewrites `oneOf` ("exactly one schema matches") to `anyOf`.

A grammar can express only `anyOf` ("at least one schema matches"). The two are equivalent if no value matches
two branches: because the branches are disjoint, or because each branch is rewritten to forbid a key that the
other branch requires.
"""

from __future__ import annotations

from typing import Any

from .document import refused, step
from .overlap import Disjointness


def exactly_one(branches: list[Any], written: list[Any], proofs: Disjointness, place: str) -> Any:
    """Return a schema without `oneOf` that matches only values of exactly one branch.

    Args:
        branches: branches as the client wrote them.
        written: the same branches, rewritten.
        proofs: disjointness proofs for the schema's document.
        place: JSON pointer to the schema that has the `oneOf`.

    Raises:
        RequestError: a value may match two branches.
    """
    forbidden: list[list[str]] = [[] for _ in branches]
    for i, one in enumerate(branches):
        for j, other in enumerate(branches):
            if i == j or other is False or one is False or proofs.disjoint(one, other):
                continue
            keys = proofs.required(other) - proofs.required(one)
            if not keys:
                raise refused(
                    step(place, "oneOf"),
                    "oneOf",
                    f"a value may fit both its schemas {min(i, j)} and {max(i, j)}; write 'anyOf', or give each a "
                    "'required' property with a 'const' of its own",
                )
            forbidden[i].append(min(keys, key=lambda key: (_mentions(one, key), key)))
    return {"anyOf": [_without(part, keys) for part, keys in zip(written, forbidden, strict=True)]}


def _mentions(schema: Any, key: str) -> bool:
    return key in str(schema)


def _without(schema: Any, keys: list[str]) -> Any:
    if not keys:
        return schema
    return {"type": "object", "properties": dict.fromkeys(keys, False), "allOf": [schema]}
