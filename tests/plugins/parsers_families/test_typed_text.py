"""Bare text → JSON, by a schema."""

from __future__ import annotations

import json

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfw.plugins.parsers_families.typed_text import kinds_of, to_json

NAMES = ["string", "integer", "number", "boolean", "null", "object", "array"]


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("7", {"type": "integer"}, 7),
        ("7", {"type": "string"}, "7"),
        ("7", {"type": ["string", "null"]}, "7"),
        ("null", {"type": ["string", "null"]}, None),
        ("None", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None),
        ("7.5", {"type": "integer"}, "7.5"),
        ("7", {"type": "number"}, 7),
        ("False", {"type": "boolean"}, False),
        ("false", {"type": "integer"}, "false"),
        ("NaN", {"type": "number"}, "NaN"),
        ("[1, 'a']", {"type": "array"}, [1, "a"]),
        ("{1}", {"type": "object"}, "{1}"),
        ("2", {"enum": [1, 2, None]}, 2),
        ("2", {}, "2"),
        ('{"a": 1}', None, {"a": 1}),
    ],
)
def test_values_are_converted_by_their_schema(text: str, schema: object, value: object) -> None:
    read = json.loads(to_json(text, kinds_of(schema)))
    assert (read, type(read)) == (value, type(value))


@settings(deadline=None)
@given(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(), st.lists(st.integers())),
    st.sets(st.sampled_from(NAMES), min_size=1),
)
def test_converted_values_satisfy_the_schema(value: object, kinds: set[str]) -> None:
    text = value if isinstance(value, str) else json.dumps(value)
    read = json.loads(to_json(text, kinds))
    validator = jsonschema.Draft202012Validator({"type": sorted(kinds)})
    assert validator.is_valid(read) or read == text


def test_python_s_syntax_warnings_are_suppressed() -> None:
    assert json.loads(to_json("['\\d']", {"array"})) == ["\\d"]


def test_unpaired_surrogates_are_escaped() -> None:
    assert to_json("['\\ud800é']", {"array"}) == '["\\ud800\\u00e9"]'
