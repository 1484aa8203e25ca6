"""What is generated fits the client's schema, and what could not be made to fit is refused by name."""

from __future__ import annotations

import json
import time
from typing import Any

import jsonschema
import pytest
from jsonschema.validators import validator_for

from llmfw.core.base.errors import RequestError

from .schemas import REFUSED, SUPPORTED
from .walking import compiled, fits, walk


@pytest.mark.long
@pytest.mark.parametrize("about", SUPPORTED)
def test_sampled_outputs_satisfy_the_schema(about: str) -> None:
    schema = SUPPORTED[about]
    grammar = compiled("json_schema", schema)
    checker = validator_for(schema, default=jsonschema.Draft202012Validator)
    texts = [walk(grammar, seed, limit=300) for seed in range(6)]
    finished = [text for text in texts if text is not None]
    assert finished
    for text in finished:
        checker(schema).validate(json.loads(text))


@pytest.mark.parametrize("about", REFUSED)
def test_unsupported_schemas_name_the_reason(about: str) -> None:
    schema, reason = REFUSED[about]
    with pytest.raises(RequestError, match=reason):
        compiled("json_schema", schema)


@pytest.mark.parametrize("text", ['{"a":1,"b":2}', '{"a": 1, "b": 2}', '{"a":1, "b": 2}'])
def test_json_has_the_whitespace_models_write(text: str) -> None:
    integer = {"type": "integer"}
    schema = {"type": "object", "properties": {"a": integer, "b": integer}, "required": ["a", "b"]}
    assert fits(compiled("json_schema", schema), text)
    assert not fits(compiled("json_schema", schema), text.replace(",", ",  "))


def test_known_keys_cannot_reappear_escaped() -> None:
    schema = {"properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}}
    assert fits(compiled("json_schema", schema), '{"b":"x"}')
    assert not fits(compiled("json_schema", schema), '{"\\u0061":"x"}')


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{", "not JSON"),
        (json.dumps({"enum": ["x" * 1_000_000]}), "limit is 1000000"),
        ('{"not":' * 10_000 + "{}" + "}" * 10_000, "nested too deeply"),
        ('{"properties":{"a":' * 60 + "{}" + "}}" * 60, "nested too deeply"),
        (json.dumps({"type": "string", "pattern": "(" * 5000 + ")" * 5000}), "pattern"),
    ],
)
def test_excessive_schemas_are_refused_quickly(source: str, reason: str) -> None:
    start = time.monotonic()
    with pytest.raises(RequestError, match=reason):
        compiled("json_schema", source)
    assert time.monotonic() - start < 5


def test_schemas_at_the_depth_limit_work() -> None:
    depth = 40
    source = '{"properties":{"a":' * depth + '{"type":"null"}' + "}}" * depth
    assert fits(compiled("json_schema", source), '{"a":' * depth + "null" + "}" * depth)


def test_an_endless_branch_is_not_entered() -> None:
    endless: dict[str, Any] = {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/e"}},
        "required": ["x"],
    }
    schema = {"anyOf": [{"$ref": "#/$defs/e"}, {"type": "null"}], "$defs": {"e": endless}}
    assert {walk(compiled("json_schema", schema), seed) for seed in range(3)} == {"null"}
