"""A number of any size at any place of a schema is held to or refused by name, and nothing else happens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import GrammarSpec
from llmfw.plugins.grammar_llguidance.backend import LlguidanceBackend

from ...length import also
from .schemas import REFUSED, SUPPORTED
from .walking import demo_backend

NUMBERS = ["-0", "5e-324", "1e400", "NaN", str(2**63), "9" * 4300]
"""A number of each kind: zero, tiny, infinite, none, larger than 64 bits, and with more digits than Python reads."""
SIMILAR = [
    "-0.0",
    "1e-400",
    "1e308",
    "-1e308",
    "-1e400",
    "-Infinity",
    "9" * 309,
    "-" + "9" * 400,
    "1" + "0" * 5000,
]
KEYWORDS = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minContains",
    "maxContains",
    "const",
    "default",
    "examples",
    "properties",
    "items",
    "required",
    "pattern",
    "format",
    "$ref",
    "additionalProperties",
    "prefixItems",
    "not",
    "if",
]
TYPES = ("integer", "number", "string", "array", "object")
CORPUS: dict[str, Any] = {
    **SUPPORTED,
    **{f"refused {name}": schema for name, (schema, _) in REFUSED.items() if not isinstance(schema, str)},
    **{
        f"{kind} {keyword}": {"type": kind, keyword: 1, **({"contains": {}} if "Contains" in keyword else {})}
        for kind in TYPES
        for keyword in KEYWORDS
    },
    "enum": {"enum": [1, [2], {"a": 3}]},
    "enum in all": {"allOf": [{"enum": [1, 2]}, {"type": "number"}, {"not": {"const": 2}}]},
    "one of": {"oneOf": [{"const": 1}, {"type": "integer", "minimum": 5}]},
    "unique": {"type": "array", "uniqueItems": True, "items": {"enum": [1, 2]}},
}
PLACE = "the place of a number"


def with_number(value: Any) -> Iterator[Any]:
    """Yield copies of a value with a mark in place of one of its numbers."""
    if type(value) in (int, float):
        yield PLACE
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from ({**value, key: changed} for changed in with_number(inner))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from ([*value[:i], changed, *value[i + 1 :]] for changed in with_number(inner))


@pytest.mark.parametrize(
    "number", [*NUMBERS, *also(SIMILAR)], ids=lambda text: text[:8] + f"…{len(text)}" * (len(text) > 8)
)
def test_numbers_anywhere_are_enforced_or_refused(number: str) -> None:
    backend, num = demo_backend(), 0
    for about, schema in CORPUS.items():
        for marked in with_number(schema):
            source = json.dumps(marked).replace(f'"{PLACE}"', number)
            num += 1
            assert len(_refusal(backend, source, about)) < 2000, about
    assert num > 100


def test_a_reference_with_thousands_of_digits_is_refused() -> None:
    source = json.dumps({"$ref": f"#/allOf/{'9' * 5000}", "allOf": [{}]})
    assert "there is nothing at" in _refusal(demo_backend(), source, "")


def _refusal(backend: LlguidanceBackend, source: str, about: str) -> str:
    """Return why a schema is refused, "" if it is not."""
    try:
        backend.compile(GrammarSpec("json_schema", source))
    except RequestError as error:
        return str(error)
    except Exception as error:
        raise AssertionError(f"{about}: {source[:200]}") from error
    return ""
