"""What the Responses API remembers: stored responses, pages of their items, the background, restarts."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import Response, ResponseInputItem
from pydantic import TypeAdapter

from llmfw.core.interfaces.tokenizer import Tokenizer
from llmfw.plugins.store_memory.responses import MemoryResponses
from llmfw.plugins.store_sqlite.responses import SqliteResponses

from ..doubles.echo_engine import CRASH, WAIT, EchoEngine
from ..doubles.serving import SERVED_NAME, Served, byte_tokenizer, serving, wait_until

TRANSCRIPT = "{% for m in messages %}{{ m.role }}:{{ m.content }}|{% endfor %}"
"""A chat template that makes the echo engine answer with the whole conversation."""


def create(sdk: openai.OpenAI, input: Any, **fields: Any) -> Any:
    return sdk.responses.create(model=SERVED_NAME, input=input, **fields)


def test_a_response_is_stored_until_it_is_deleted(sdk: openai.OpenAI) -> None:
    made = create(sdk, "hello")
    assert sdk.responses.retrieve(made.id).to_dict() == made.to_dict()
    sdk.responses.delete(made.id)
    for call in (
        sdk.responses.retrieve,
        sdk.responses.delete,
        sdk.responses.cancel,
        sdk.responses.input_items.list,
    ):
        with pytest.raises(openai.NotFoundError):
            call(made.id)


@pytest.mark.parametrize("response_id", ["%ff", "%00", "%ed%a0%80", "'", "x" * 5000, "a%2Fb"])
def test_an_impossible_id_is_not_found(tmp_path: Path, response_id: str) -> None:
    store = SqliteResponses(tmp_path, 2**20)
    with serving(EchoEngine(), byte_tokenizer(tmp_path), stores={"responses": store}) as served:
        assert httpx.get(f"{served.url}/v1/responses/{response_id}").status_code == 404
        reply = served.post("/v1/responses", {"input": "x", "previous_response_id": response_id})
        assert reply.json()["error"]["code"] == "previous_response_not_found"


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_one_of_several_concurrent_deletions_succeeds(tmp_path: Path, store: str) -> None:
    """Also while it is cancelled, which stores it anew."""
    kind = {"memory": MemoryResponses, "sqlite": SqliteResponses}[store]
    stores = {"responses": kind(tmp_path, 2**20)}
    calls = ["DELETE", "POST", "POST", "POST", "DELETE", "DELETE"]
    with (
        serving(EchoEngine(), odd_tokenizer(tmp_path), stores=stores) as served,
        ThreadPoolExecutor(len(calls)) as pool,
        httpx.Client() as client,
    ):
        for _ in range(15):
            body = {"input": "w", "background": True}
            url = f"{served.url}/v1/responses/{served.post('/v1/responses', body).json()['id']}"
            at_once = Barrier(len(calls))

            def call(method: str, url: str = url, at_once: Barrier = at_once) -> int:
                at_once.wait()
                return client.request(method, url + "/cancel" * (method == "POST")).status_code

            codes = list(pool.map(call, calls))
            deleted = [code for method, code in zip(calls, codes, strict=True) if method == "DELETE"]
            assert sorted(deleted) == [200, 404, 404]
            assert httpx.get(url).status_code == 404


def test_store_false_does_not_store(sdk: openai.OpenAI) -> None:
    made = create(sdk, "hello", store=False)
    assert made.to_dict()["store"] is False
    with pytest.raises(openai.NotFoundError):
        sdk.responses.retrieve(made.id)
    with pytest.raises(openai.BadRequestError) as caught:
        create(sdk, "more", previous_response_id=made.id)
    assert caught.value.code == "previous_response_not_found"


def test_a_deleted_turn_is_named(sdk: openai.OpenAI) -> None:
    first = create(sdk, "a")
    second = create(sdk, "b", previous_response_id=first.id)
    sdk.responses.delete(first.id)
    with pytest.raises(
        openai.BadRequestError, match=f"{second.id}.* continues '{first.id}', which is not there"
    ):
        create(sdk, "c", previous_response_id=second.id)


def test_input_items_are_paged_over_all_turns(sdk: openai.OpenAI) -> None:
    first = create(sdk, "a")
    second = create(sdk, [{"role": "user", "content": text} for text in "bcd"], previous_response_id=first.id)
    page = sdk.responses.input_items.list(second.id, limit=2, order="asc")
    assert (page.has_more, page.first_id, page.last_id) == (True, page.data[0].id, page.data[1].id)
    texts = [item.content[0].text for item in page]
    assert texts == ["a", "a", "b", "c", "d"]
    assert [item.content[0].text for item in sdk.responses.input_items.list(second.id)] == texts[::-1]
    for item in page:
        TypeAdapter(ResponseInputItem).validate_python(item.to_dict())


@pytest.mark.parametrize(
    ("query", "param"), [("limit=0", "limit"), ("order=up", "order"), ("after=x", "after")]
)
def test_a_wrong_page_is_named(server: Served, query: str, param: str) -> None:
    made = server.post("/v1/responses", {"input": "x"}).json()
    reply = httpx.get(f"{server.url}/v1/responses/{made['id']}/input_items?{query}")
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


def test_input_tokens_are_counted_without_generating(server: Served, sdk: openai.OpenAI) -> None:
    before = len(server.engine.requests)
    assert sdk.responses.input_tokens.count(model=SERVED_NAME, input="hello").input_tokens == 5
    assert len(server.engine.requests) == before


def wait_for(sdk: openai.OpenAI, response_id: str, status: str) -> Response:
    wait_until(lambda: sdk.responses.retrieve(response_id).status == status)
    return sdk.responses.retrieve(response_id)


def test_background_responses_are_queued_then_completed(sdk: openai.OpenAI) -> None:
    made = create(sdk, "hello", background=True)
    assert (made.status, made.output) == ("queued", [])
    assert wait_for(sdk, made.id, "completed").output_text == "hello"
    assert sdk.responses.cancel(made.id).status == "completed"


def test_only_background_responses_can_be_cancelled(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="background"):
        sdk.responses.cancel(create(sdk, "hello").id)


def odd_tokenizer(folder: Path) -> Tokenizer:
    """Return a tokenizer that makes "w" the token that waits for ever and "c" the one that crashes."""
    tokenizer = byte_tokenizer(folder)
    encode = tokenizer.encode
    odd = {tokenizer.encode(text)[0]: token for text, token in (("w", WAIT), ("c", CRASH))}

    def encode_odd(text: str, **options: Any) -> list[int]:
        return [odd.get(token, token) for token in encode(text, **options)]

    tokenizer.encode = encode_odd  # type: ignore[method-assign]
    return tokenizer


@pytest.fixture
def odd(tmp_path: Path) -> Iterator[Served]:
    """A server with that tokenizer."""
    with serving(EchoEngine(), odd_tokenizer(tmp_path)) as served:
        yield served


def test_cancelling_ends_the_generation(odd: Served) -> None:
    with odd.openai() as sdk:
        made = create(sdk, "w", background=True)
        wait_until(lambda: odd.engine.has_work)
        with pytest.raises(openai.BadRequestError, match="can be continued when it has ended"):
            create(sdk, "more", previous_response_id=made.id)
        assert sdk.responses.cancel(made.id).status == "cancelled"
        assert sdk.responses.retrieve(made.id).status == "cancelled"
        wait_until(lambda: len(odd.engine.aborted) == 1)


def test_deleting_a_running_response_ends_it(odd: Served) -> None:
    with odd.openai() as sdk:
        made = create(sdk, "w", background=True)
        wait_until(lambda: odd.engine.has_work)
        sdk.responses.delete(made.id)
        wait_until(lambda: len(odd.engine.aborted) == 1)


def test_a_failed_background_response_names_the_reason(odd: Served) -> None:
    with odd.openai() as sdk:
        made = create(sdk, "c", background=True)
        failed = wait_for(sdk, made.id, "failed")
        assert failed.error is not None
        assert failed.error.code == "server_error"


def test_a_failure_in_mid_stream_is_an_event(odd: Served) -> None:
    with odd.openai() as sdk:
        last = list(create(sdk, "c", stream=True))[-1]
        assert (last.type, last.response.error.code) == ("response.failed", "server_error")
        assert sdk.responses.retrieve(last.response.id).status == "failed"


def test_a_conversation_survives_a_restart(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer(tmp_path)
    with serving(
        EchoEngine(), tokenizer, TRANSCRIPT, stores={"responses": SqliteResponses(tmp_path, 2**20)}
    ) as served:
        first = create(served.openai(), "a")
    with serving(
        EchoEngine(), tokenizer, TRANSCRIPT, stores={"responses": SqliteResponses(tmp_path, 2**20)}
    ) as served:
        second = create(served.openai(), "b", previous_response_id=first.id)
    assert second.output_text == "user:a|assistant:user:a||user:b|"


def test_shutdown_stores_running_responses_as_failed(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer(tmp_path)
    store = SqliteResponses(tmp_path, 2**20)
    engine = EchoEngine(delay=0.2)
    with serving(engine, tokenizer, stores={"responses": store}) as served:
        made = create(served.openai(), "a long answer", background=True)
        wait_for(served.openai(), made.id, "in_progress")
    [request] = engine.requests
    assert engine.aborted == [request.id]
    found = stored(tmp_path, made.id)
    assert (found["status"], found["error"]["code"]) == ("failed", "server_error")
    assert "the server ended" in found["error"]["message"]
    assert found["output"][0]["status"] == "incomplete"


def test_a_restart_marks_crashed_responses_failed(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer(tmp_path)
    with serving(EchoEngine(), tokenizer, stores={"responses": SqliteResponses(tmp_path, 2**20)}) as served:
        made = create(served.openai(), "a")
    with sqlite3.connect(tmp_path / "responses.db") as file:  # as a crash leaves it
        file.execute("UPDATE responses SET status = 'in_progress'")
    with serving(EchoEngine(), tokenizer, stores={"responses": SqliteResponses(tmp_path, 2**20)}) as served:
        found = served.openai().responses.retrieve(made.id)
    assert found.status == "failed"
    assert found.error is not None
    assert "the server ended" in found.error.message


def stored(folder: Path, response_id: str) -> Any:
    """Return a response as it is in the store of a server that has ended."""

    async def read() -> Any:
        store = SqliteResponses(folder, 2**20)
        try:
            return json.loads((await store.get(response_id)).response)
        finally:
            await store.close()

    return asyncio.run(read())


def test_old_conversations_are_removed(tmp_path: Path) -> None:
    with serving(
        EchoEngine(), byte_tokenizer(tmp_path), stores={"responses": SqliteResponses(tmp_path, 2**20)}
    ) as served:
        made = create(served.openai(), "a")
    stores = {"responses": SqliteResponses(tmp_path, 2**20)}
    with serving(EchoEngine(), byte_tokenizer(tmp_path), stores=stores, response_ttl_days=1e-9) as served:
        wait_until(lambda: httpx.get(f"{served.url}/v1/responses/{made.id}").status_code == 404)
