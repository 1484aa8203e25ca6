"""Bounds of numbers are those of the schema: what a validator refuses is never generated."""

from __future__ import annotations

from itertools import product
from typing import Any

import jsonschema
import pytest

from ...length import of_length
from .walking import compiled, fits

BOUNDS = [0, 1, -1, 0.5, -0.25, 0.001, 1e-06, 3][: of_length(5, 8)]
TEXTS = [
    *(
        "0",
        "-0",
        "0.0",
        "-0.0",
        "1",
        "-1",
        "1.0",
        "2",
        "0.5",
        "0.500001",
        "0.499999",
        "-0.25",
        "-0.250001",
        "-0.249999",
    ),
    *("0.001", "0.002", "0.000001", "0.000002", "-0.000001", "0.999999", "1.000001", "3", "2.999999"),
]


@pytest.mark.parametrize("kind", ["number", "integer"])
@pytest.mark.parametrize("low", ["minimum", "exclusiveMinimum"])
@pytest.mark.parametrize("high", ["maximum", "exclusiveMaximum"])
def test_numbers_are_within_the_bounds(kind: str, low: str, high: str) -> None:
    for least, most in product(BOUNDS, BOUNDS):
        check({"type": kind, low: least, high: most})


def test_both_kinds_of_bound_hold() -> None:
    for step in ({}, {"multipleOf": 0.25}):
        check(
            {"type": "number", "minimum": 0, "exclusiveMinimum": -1, "maximum": 1, "exclusiveMaximum": 1}
            | step
        )
        check(
            {"type": "number", "minimum": -1, "exclusiveMinimum": 0, "maximum": 0.5, "exclusiveMaximum": 1}
            | step
        )


def check(schema: dict[str, Any]) -> None:
    """Compare the grammar of a schema with a validator, unless the schema allows no text."""
    is_valid = jsonschema.Draft202012Validator(schema).is_valid
    texts = [text for text in TEXTS if schema["type"] == "number" or text.lstrip("-").isdecimal()]
    valid = [text for text in texts if is_valid(float(text))]
    if not valid:
        return
    grammar = compiled("json_schema", schema)
    written = [text for text in texts if fits(grammar, text)]
    assert set(written) <= set(valid)
    if "multipleOf" not in schema:
        assert {text for text in valid if text == _usual(text)} <= set(written)


def _usual(text: str) -> str:
    """Return a number of up to six decimals as it is usually written."""
    return "0" if float(text) == 0 else f"{float(text):.6f}".rstrip("0").rstrip(".")
