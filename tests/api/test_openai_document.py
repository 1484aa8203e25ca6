"""Replies and streams validate against OpenAI's published OpenAPI document.

The document is not part of this repository: LLMFW_OPENAI_DOCUMENT names a copy of its JSON form. Without one, the
types of OpenAI's SDK, which are made from it, are the judge (`test_sdk_types.py`).
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from ..doubles.serving import Served
from .wire_calls import CALLS, Call

PATH = os.environ.get("LLMFW_OPENAI_DOCUMENT", "")

pytestmark = pytest.mark.skipif(not PATH, reason="LLMFW_OPENAI_DOCUMENT names no copy of OpenAI's document")


def with_nulls(schema: Any) -> Any:
    """Return a schema in which `nullable`, a word of OpenAPI 3.0 that the document still uses, has its meaning."""
    if isinstance(schema, list):
        return [with_nulls(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: with_nulls(value) for key, value in schema.items() if key != "nullable"}
    return {"anyOf": [inner, {"type": "null"}]} if schema.get("nullable") is True else inner


@cache
def registry() -> Registry[Any]:
    document = with_nulls(json.loads(Path(PATH).read_text("utf-8")))
    return Registry().with_resource("urn:openai", Resource.from_contents(document, DRAFT202012))


def complaints(name: str, value: Any) -> list[str]:
    """Return what is wrong with a value of a schema of the document."""
    schema = {"$ref": f"urn:openai#/components/schemas/{name}"}
    errors = jsonschema.Draft202012Validator(schema, registry=registry()).iter_errors(value)
    return [f"{error.json_path}: {_cause(error).message}" for error in errors]


def _cause(error: jsonschema.ValidationError) -> jsonschema.ValidationError:
    return jsonschema.exceptions.best_match([error])


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.id)
def test_replies_match_openai_s_document(demo_server: Served, call: Call) -> None:
    reply = call.send(demo_server.url)
    assert reply.status_code == call.status, reply.text
    values = call.values(reply)
    assert values
    assert [(value, found) for value in values if (found := complaints(call.form.schema, value))] == []


def test_a_wrong_reply_is_detected() -> None:
    assert complaints("ListModelsResponse", {"object": "list", "data": None})
    assert not complaints("ListModelsResponse", {"object": "list", "data": []})
