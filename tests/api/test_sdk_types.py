"""Replies and streams are values of the types of OpenAI's SDK, checked as strictly as pydantic can."""

from __future__ import annotations

from typing import Any

import pydantic
import pytest

from ..doubles.serving import Served
from .wire_calls import CALLS, Call


def unknown_keys(value: Any, path: str = "") -> list[str]:
    """Return the keys that the SDK's types do not have."""
    if isinstance(value, list):
        return [key for i, item in enumerate(value) for key in unknown_keys(item, f"{path}[{i}]")]
    if not isinstance(value, pydantic.BaseModel):
        return []
    known = {name: getattr(value, name) for name in type(value).model_fields}
    extra = [f"{path}.{name}" for name in value.model_extra or {}]
    return extra + [key for name, inner in known.items() for key in unknown_keys(inner, f"{path}.{name}")]


OURS = {
    *("reasoning_content", "reasoning_tokens", "root", "max_model_len", "weight_version", "store", "name"),
    *("matched_stop", "stop_reason"),
}
"""What llmfw tells beyond the SDK's types; of these, OpenAI's document has a response's `store` and the `name` of done arguments."""


@pytest.mark.long
@pytest.mark.parametrize("call", [c for c in CALLS if c.form.kind is not None], ids=lambda call: call.id)
def test_replies_match_the_sdk_s_types(demo_server: Served, call: Call) -> None:
    reply = call.send(demo_server.url)
    assert reply.status_code == call.status, reply.text
    assert reply.headers["x-request-id"]
    for value in call.values(reply):
        typed = pydantic.TypeAdapter(call.form.kind).validate_python(value)
        assert {key.rpartition(".")[2] for key in unknown_keys(typed)} <= OURS
