"""The JSON schemas of the kit for grammar backends mean what their examples say, by another implementation."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from jsonschema.validators import validator_for

from llmfw.core.testing.broken_grammars import SCHEMAS as BROKEN
from llmfw.core.testing.grammar_schemas import SCHEMAS, UNBOUNDED
from llmfw.core.testing.schema_example import SchemaExample

MEANINGLESS = [schema for schema in BROKEN if not isinstance(schema, dict | bool)]


def validator_of(schema: Any) -> Any:
    return validator_for(schema, default=jsonschema.Draft202012Validator)(schema)


@pytest.mark.parametrize("example", SCHEMAS, ids=lambda example: json.dumps(example.schema)[:60])
def test_examples_agree_with_jsonschema(example: SchemaExample) -> None:
    checker = validator_of(example.schema)
    if "$id" not in str(example.schema):  # another draft's metaschema may be named inside
        checker.check_schema(example.schema)
    assert [value for value in example.fits if not checker.is_valid(value)] == []
    if '"format"' not in json.dumps(example.schema):  # an annotation, which a grammar holds to nevertheless
        assert [value for value in example.misfits if checker.is_valid(value)] == []


def test_unbounded_schemas_allow_long_values() -> None:
    assert all(validator_of(schema).is_valid(value) for schema, value in zip(UNBOUNDED, LONG, strict=True))


LONG = ("a" * 1000, ["a"] * 1000, [[1] * 1000], [{"a": "a" * 1000}], {str(n): "a" for n in range(1000)})
