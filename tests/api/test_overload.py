"""What clients see of a server that is busy: refusals that say when to come back, comments while they wait, ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import openai
import pytest

from llmfw.api.http.sse import comment_on
from llmfw.core.base.errors import DeadlineError
from llmfw.core.base.request import Wait

from ..doubles.busy_engine import FULL, TENANT, BusyEngine
from ..doubles.echo_engine import WAIT
from ..doubles.serving import SERVED_NAME, Served, byte_tokenizer, serving, wait_until

MESSAGES = [{"role": "user", "content": "Hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/completions": {"prompt": "Hi"},
    "/v1/responses": {"input": "Hi"},
    "/v1/messages": {"model": SERVED_NAME, "max_tokens": 9, "messages": MESSAGES},
    "/generate": {"text": "Hi"},
}
LATE = DeadlineError("the request's timeout of 1 s has passed while 3 requests were before it")


@pytest.fixture(scope="module")
def module_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(BusyEngine(), byte_tokenizer(tmp_path_factory.mktemp("model"))) as served:
        yield served


@pytest.fixture
def busy(module_server: Served) -> Served:
    module_server.engine.refusals.clear()
    module_server.engine.waits = []
    return module_server


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
def test_a_full_queue_is_503_with_retry_after(busy: Served, path: str, stream: bool) -> None:
    busy.engine.refusals.append(FULL)
    reply = busy.post(path, {**BODIES[path], "stream": stream})
    assert reply.status_code == (529 if path == "/v1/messages" else 503)
    assert reply.headers["retry-after"] == "1"
    assert "x-should-retry" not in reply.headers
    assert reply.headers["content-type"] == "application/json"
    error = reply.json()["error"]
    assert error["message"] == str(FULL)
    assert error.get("code", "overloaded") == "overloaded"
    assert (path != "/v1/messages") or error["type"] == "overloaded_error"


@pytest.mark.parametrize("path", BODIES)
def test_a_tenant_s_limit_is_429(busy: Served, path: str) -> None:
    busy.engine.refusals.append(TENANT)
    reply = busy.post(path, {**BODIES[path], "stream": True})
    assert (reply.status_code, reply.headers["retry-after"]) == (429, "3")
    assert reply.json()["error"]["type"] == "rate_limit_error"


@pytest.mark.parametrize("path", BODIES)
def test_an_expired_request_is_408_without_retry(busy: Served, path: str) -> None:
    busy.engine.refusals.append(LATE)
    reply = busy.post(path, {**BODIES[path], "stream": True})
    assert (reply.status_code, reply.headers["x-should-retry"]) == (408, "false")
    assert reply.json()["error"]["type"] == "timeout_error"


@pytest.mark.long
@pytest.mark.parametrize("error", [FULL, TENANT])
def test_openai_s_sdk_retries_after_the_given_time(busy: Served, error: Exception) -> None:
    busy.engine.refusals += [error, error]
    with busy.openai().with_options(max_retries=2) as sdk:
        stream = sdk.chat.completions.create(model=SERVED_NAME, messages=MESSAGES, stream=True)  # type: ignore
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "Hi"


def test_sdks_do_not_retry_expired_requests(busy: Served) -> None:
    busy.engine.refusals += [LATE, None]
    sdk = busy.openai().with_options(max_retries=2)
    with sdk, pytest.raises(openai.APIStatusError, match="3 requests were before it") as caught:
        sdk.completions.create(model=SERVED_NAME, prompt="Hi")
    assert (caught.value.status_code, caught.value.code) == (408, "request_timeout")
    assert len(busy.engine.refusals) == 1


def test_anthropic_s_sdk_recognizes_an_overloaded_server(busy: Served) -> None:
    busy.engine.refusals.append(FULL)
    with anthropic.Anthropic(base_url=busy.url, api_key="None", max_retries=0) as sdk:
        with pytest.raises(anthropic.APIStatusError) as caught:
            sdk.messages.create(**BODIES["/v1/messages"])
        assert caught.value.status_code == 529
        assert caught.value.type == "overloaded_error"
        busy.engine.refusals += [FULL]
        assert sdk.with_options(max_retries=1).messages.create(**BODIES["/v1/messages"]).content


@pytest.mark.parametrize("stream", [False, True])
def test_one_refused_choice_aborts_the_others(busy: Served, stream: bool) -> None:
    before = len(busy.engine.aborted)
    busy.engine.refusals += [None, None, FULL]
    reply = busy.post("/v1/completions", {"prompt": [WAIT], "n": 3, "stream": stream})
    assert reply.status_code == 503
    wait_until(lambda: len(busy.engine.aborted) == before + 2)


def test_a_stream_starts_after_all_choices_are_admitted(busy: Served) -> None:
    busy.engine.waits = [Wait(4, 1.0)]
    reply = busy.post("/v1/completions", {"prompt": "Hi", "n": 3, "stream": True})
    assert reply.text.startswith(": waiting, 4 ahead, about 1.0 s\n\n" * 3 + "data: ")


@pytest.mark.parametrize("path", BODIES)
def test_streams_report_waiting_in_comments(busy: Served, path: str) -> None:
    busy.engine.waits = [Wait(12, 3.42), Wait(3), Wait(0, 0.0)]
    text = busy.post(path, {**BODIES[path], "stream": True}).text
    comments = [line for line in text.split("\n\n") if line.startswith(":")]
    assert comments == [
        ": waiting, 12 ahead, about 3.4 s",
        ": waiting, 3 ahead",
        ": admitted, the prompt is being computed",
    ]
    quiet = {**BODIES[path], "stream": False}
    assert busy.post(path, quiet).json().keys() >= {"id"} or path == "/generate"


def test_without_a_wait_there_is_no_comment() -> None:
    assert comment_on(None) == b""


def test_openai_s_sdk_skips_the_comments(busy: Served) -> None:
    busy.engine.waits = [Wait(2, 1.0)] * 3
    with busy.openai() as sdk:
        chunks = list(sdk.chat.completions.create(model=SERVED_NAME, messages=MESSAGES, stream=True))  # type: ignore
        assert [chunk.choices[0].delta.role for chunk in chunks][:2] == ["assistant", None]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hi"
        with sdk.responses.stream(model=SERVED_NAME, input="Hi") as stream:
            assert stream.get_final_response().output_text == "Hi"


def test_anthropic_s_sdk_skips_the_comments(busy: Served) -> None:
    busy.engine.waits = [Wait(2, 1.0)] * 3
    with (
        anthropic.Anthropic(base_url=busy.url, api_key="None", max_retries=0) as sdk,
        sdk.messages.stream(**BODIES["/v1/messages"]) as stream,
    ):
        assert "".join(stream.text_stream) == "Hi"


def test_background_responses_stay_queued_until_admitted(busy: Served) -> None:
    busy.engine.refusals += [FULL, FULL]
    with busy.openai() as sdk:
        made = sdk.responses.create(model=SERVED_NAME, input="Hi", background=True)
        wait_until(lambda: sdk.responses.retrieve(made.id).status == "completed")
    assert not busy.engine.refusals


def asked(busy: Served, path: str, **fields: Any) -> Any:
    """Send a body with more fields; return the request that the engine got."""
    reply = busy.post(path, {**BODIES[path], **fields})
    assert reply.status_code == 200, reply.text
    assert "llmfw-ignored-params" not in reply.headers
    return busy.engine.requests[-1]


@pytest.mark.parametrize("path", [path for path in BODIES if path != "/v1/messages"])
def test_timeout_salt_and_priority_reach_the_engine(busy: Served, path: str) -> None:
    request = asked(busy, path, timeout=2.5, cache_salt="s", priority=3)
    assert (request.timeout_s, request.cache_salt, request.priority) == (2.5, "s", 3)
    assert not request.tell_wait
    assert asked(busy, path, stream=True).tell_wait


@pytest.mark.parametrize("path", [path for path in BODIES if path != "/v1/messages"])
@pytest.mark.parametrize(
    ("field", "value"),
    [("timeout", 0), ("timeout", -1), ("timeout", "soon"), ("timeout", 86401), ("cache_salt", 5)],
)
def test_a_wrong_scheduling_field_is_named(busy: Served, path: str, field: str, value: Any) -> None:
    reply = busy.post(path, {**BODIES[path], field: value})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == field
    assert json.dumps(value) in reply.json()["error"]["message"]


def test_a_cache_salt_has_at_most_256_characters(busy: Served) -> None:
    assert asked(busy, "/generate", cache_salt="x" * 256).cache_salt == "x" * 256
    assert busy.post("/generate", {"text": "Hi", "cache_salt": "x" * 257}).status_code == 400


def test_without_named_keys_users_are_tenants(busy: Served) -> None:
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/responses"):
        assert asked(busy, path, user="ann").tenant == "ann"
        assert asked(busy, path, safety_identifier="bob").tenant == "bob"
        assert asked(busy, path).tenant == ""
    assert asked(busy, "/v1/messages", metadata={"user_id": "ann"}).tenant == "ann"
    assert (
        busy.post("/v1/messages", {**BODIES["/v1/messages"], "metadata": {"user_id": 5}}).status_code == 400
    )


def test_a_named_key_decides_the_tenant(tmp_path_factory: pytest.TempPathFactory) -> None:
    keys = (("ann", "one"), ("bob", "two"))
    with serving(BusyEngine(), byte_tokenizer(tmp_path_factory.mktemp("model")), api_key=keys) as locked:
        for name, key in keys:
            headers = {"authorization": f"Bearer {key}"}
            for path, body in BODIES.items():
                assert locked.post(path, {**body, "user": "eve"}, headers=headers).status_code == 200
                assert locked.engine.requests[-1].tenant == name
        wrong = httpx.get(locked.url + "/v1/models", headers={"x-api-key": "three"})
        assert wrong.status_code == 401
