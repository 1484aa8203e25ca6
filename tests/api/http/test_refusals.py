"""Fields that would change the answer are refused by name on every route, and pass where they change nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from llmfw.api.http.body import decode_checked, decode_generation, decode_native
from llmfw.api.responses.request import decode_input, decode_request
from llmfw.api.schemas.anthropic import CountTokensRequest, MessagesRequest
from llmfw.api.schemas.chat import ChatRequest
from llmfw.api.schemas.common import Body
from llmfw.api.schemas.completions import CompletionRequest
from llmfw.api.schemas.embeddings import EmbeddingRequest
from llmfw.api.schemas.native import GenerateRequest, NativeSampling
from llmfw.api.schemas.refusals import REFUSALS, absent
from llmfw.api.schemas.responses import InputRequest, ResponsesRequest
from llmfw.api.schemas.tokenize import TokenizeRequest
from llmfw.core.base.errors import RequestError

from ...doubles.serving import Served

Decode = Callable[[bytes], tuple[Any, list[str]]]
MESSAGES: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}
ROUTES: dict[type[Body], tuple[dict[str, Any], Decode]] = {
    ChatRequest: (MESSAGES, lambda raw: decode_generation(raw, ChatRequest)),
    CompletionRequest: ({"prompt": "a"}, lambda raw: decode_generation(raw, CompletionRequest)),
    ResponsesRequest: ({"input": "a"}, decode_request),
    InputRequest: ({"input": "a"}, decode_input),
    MessagesRequest: ({**MESSAGES, "max_tokens": 9}, lambda raw: decode_checked(raw, MessagesRequest)),
    CountTokensRequest: (MESSAGES, lambda raw: decode_checked(raw, CountTokensRequest)),
    GenerateRequest: ({"text": "a"}, decode_native),
    NativeSampling: ({}, lambda raw: decode_native(b'{"text": "a", "sampling_params": %s}' % raw)),
    EmbeddingRequest: ({"input": "a"}, lambda raw: decode_checked(raw, EmbeddingRequest)),
    TokenizeRequest: ({"prompt": "a"}, lambda raw: decode_checked(raw, TokenizeRequest)),
}
TEXT_ROUTES = (
    ChatRequest,
    CompletionRequest,
    ResponsesRequest,
    MessagesRequest,
    GenerateRequest,
    NativeSampling,
)


def refused(kind: type[Body]) -> list[str]:
    return sorted(set(kind.refused) - set(kind.__struct_fields__))


@pytest.mark.parametrize("kind", ROUTES)
def test_neutral_values_pass_and_others_are_refused(kind: type[Body]) -> None:
    """Holds for hundreds of fields, so that they are not a test each."""
    wrong = {name: said for name in refused(kind) if (said := found_wrong(kind, name))}
    assert wrong == {}


def found_wrong(kind: type[Body], name: str) -> str:
    """Return what is wrong with how a body treats a field that it refuses; "" if nothing is."""
    body, decode = ROUTES[kind]
    for value in (None, *kind.refused[name].neutral):
        try:
            _, ignored = decode(json.dumps({**body, name: value}).encode())
        except RequestError as error:
            return f"{value!r} is refused: {error}"
        if ignored:
            return f"{value!r} is ignored"
    if kind.refused[name].tunes:
        return ""  # see the test of these
    try:
        decode(json.dumps({**body, name: {"other": 1}}).encode())
    except RequestError as error:
        text = f'{name} is {{"other":1}}, which is not supported: '
        is_named = error.code == "unsupported_parameter" and (error.param or "").endswith(name)
        return "" if is_named and text in str(error) else f"{error.code}, {error.param}: {error}"
    return "another value passes"


USED = {"skip_special_tokens": False, "presence_penalty": 0.5}
NEUTRAL = {"skip_special_tokens": True, "presence_penalty": 0}


@pytest.mark.parametrize("kind", TEXT_ROUTES)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("repeat_last_n", 64),
        ("repetition_penalty_range", 64),
        ("penalize_nl", False),
        ("length_penalty", 0.6),
        ("early_stopping", True),
        ("spaces_between_special_tokens", False),
    ],
)
def test_irrelevant_tuning_fields_are_ignored(kind: type[Body], name: str, value: Any) -> None:
    body, decode = ROUTES[kind]
    given = {**body, name: value}
    assert any(name in each for each in decode(json.dumps(given).encode())[1])
    for tuned in kind.refused[name].tunes:
        if tuned in NEUTRAL and (tuned in kind.refused or tuned in kind.__struct_fields__):
            assert any(
                name in each for each in decode(json.dumps({**given, tuned: NEUTRAL[tuned]}).encode())[1]
            )
        with pytest.raises(RequestError):
            decode(json.dumps({**given, tuned: USED.get(tuned, 3)}).encode())


@pytest.mark.parametrize("kind", TEXT_ROUTES)
def test_text_routes_honor_or_refuse_every_known_field(kind: type[Body]) -> None:
    honored = {name for each in TEXT_ROUTES for name in each.__struct_fields__ if name in REFUSALS}
    assert set(REFUSALS) | honored <= set(kind.__struct_fields__) | set(kind.refused)


@pytest.mark.parametrize("kind", ROUTES)
def test_advice_names_existing_fields(kind: type[Body]) -> None:
    for name in refused(kind):
        advice = kind.refused[name].advice(kind.__struct_fields__)
        assert advice
        if advice.startswith("use ") and " " not in advice[4:]:
            assert advice[4:].partition(".")[0] in kind.__struct_fields__


@pytest.mark.parametrize(
    ("value", "passes"),
    [(None, True), (0, True), (0.0, True), (False, False), (1, False), ("", False), ([], False)],
)
def test_only_exact_neutral_values_pass(value: Any, passes: bool) -> None:
    assert absent(0).passes(value) is passes


@pytest.mark.parametrize("path", ["chat/completions", "completions", "responses", "messages", "/generate"])
def test_every_route_refuses_meaningful_unsupported_fields(server: Served, path: str) -> None:
    body = {"messages": MESSAGES["messages"], "max_tokens": 9}
    body = {"completions": {"prompt": "a"}, "responses": {"input": "a"}, "/generate": {"text": "a"}}.get(
        path, body
    )
    url = path if path.startswith("/") else f"/v1/{path}"
    reply = server.post(url, {**body, "num_beams": 1, "mirostat_tau": 5})
    assert (reply.status_code, reply.headers["llmfw-ignored-params"]) == (200, "mirostat_tau")
    for name, value in (("num_beams", 2), ("typical_p", 0.9), ("template", "a")):
        reply = server.post(url, {**body, name: value})
        assert reply.status_code == 400
        assert f"{name} is " in reply.json()["error"]["message"]
