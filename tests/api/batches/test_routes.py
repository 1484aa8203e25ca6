"""/v1/batches as a client sees it: OpenAI's SDK reads every reply, and what is wrong is said as OpenAI says it."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import openai
import pytest
from openai.types import Batch

from llmfw.core.base.request import FinishReason, TokenEvent
from llmfw.core.interfaces.tokenizer import Tokenizer

from ...doubles.echo_engine import EchoEngine
from ...doubles.serving import Served, memory_stores, serving
from .rig import Line, chat_line, chat_lines, jsonl, parsed, put_file, read_file

Stores = dict[str, Any]
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def files() -> Stores:
    return memory_stores()


@pytest.fixture(scope="module")
def server(tokenizer: Tokenizer, files: Stores) -> Iterator[Served]:
    with serving(EchoEngine(), tokenizer, stores=files) as served:
        yield served


@pytest.fixture(scope="module")
def sdk(server: Served) -> Iterator[openai.OpenAI]:
    with server.openai() as client:
        yield client


def upload(files: Stores, lines: list[Line], **fields: Any) -> str:
    return asyncio.run(put_file(files["files"], jsonl(lines), **fields))


def create(sdk: openai.OpenAI, files: Stores, lines: list[Line], **fields: Any) -> Batch:
    """Make a batch; endpoint and completion window are the usual ones."""
    known: dict[str, Any] = {"endpoint": CHAT, "completion_window": "24h"} | fields
    return sdk.batches.create(input_file_id=upload(files, lines), **known)


def ended(sdk: openai.OpenAI, batch: Batch) -> Batch:
    deadline = time.monotonic() + 60
    while (batch := sdk.batches.retrieve(batch.id)).status not in ("completed", "failed", "cancelled"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return batch


def lines_of(files: Stores, file_id: str | None) -> list[Line]:
    return parsed(asyncio.run(read_file(files["files"], file_id)))


def test_the_sdk_follows_a_batch_to_its_end(sdk: openai.OpenAI, files: Stores) -> None:
    begun = create(sdk, files, chat_lines(3), metadata={"night": "1"})
    assert (begun.status, begun.object, begun.endpoint) == ("validating", "batch", CHAT)
    batch = ended(sdk, begun)
    assert batch.status == "completed"
    assert batch.request_counts is not None
    assert batch.request_counts.to_dict() == {"total": 3, "completed": 3, "failed": 0}
    assert (batch.metadata, batch.errors, batch.error_file_id) == ({"night": "1"}, None, None)
    assert batch.usage is not None
    assert batch.usage.total_tokens == 3 * (3 + 4)
    assert len(lines_of(files, batch.output_file_id)) == 3


def test_the_object_has_openai_s_keys(server: Served, sdk: openai.OpenAI, files: Stores) -> None:
    batch = ended(sdk, create(sdk, files, chat_lines(1)))
    reply = httpx.get(f"{server.url}/v1/batches/{batch.id}").json()
    assert reply.keys() == Batch.model_fields.keys()
    Batch.model_validate(reply, strict=True)


def test_an_output_line_has_openai_s_form(sdk: openai.OpenAI, files: Stores) -> None:
    [line] = lines_of(files, ended(sdk, create(sdk, files, [chat_line("mine")])).output_file_id)
    assert line.keys() == {"id", "custom_id", "response", "error"}
    assert line["id"].startswith("batch_req_")
    assert (line["custom_id"], line["error"]) == ("mine", None)
    assert line["response"].keys() == {"status_code", "request_id", "body"}
    assert line["response"]["status_code"] == 200
    assert line["response"]["request_id"].startswith("req_")


CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (CHAT, chat_line("a", "hello", max_tokens=4, seed=1)["body"]),
    "two": (CHAT, chat_line("a", "hello", n=2, logprobs=True)["body"]),
    "completion": ("/v1/completions", {"prompt": ["one", "two"], "echo": True}),
    "response": ("/v1/responses", {"input": "hello", "max_output_tokens": 4, "store": False}),
    "wrong": (CHAT, chat_line("a", temperature=-1)["body"]),
    "wrong_type": (CHAT, {"messages": 3}),
    "no_messages": (CHAT, {}),
    "too_long": (CHAT, chat_line("a", "x" * 600)["body"]),
    "too_many": ("/v1/completions", {"prompt": "hi", "n": 1000}),
    "no_previous": ("/v1/responses", {"input": "hi", "previous_response_id": "resp_no"}),
}
UNLIKE = ("id", "created", "created_at", "completed_at")


def alike(value: Any) -> Any:
    """Return a reply without what differs from one request to the next."""
    if isinstance(value, dict):
        return {k: alike(v) for k, v in value.items() if k not in UNLIKE and k != "cached_tokens"}
    return [alike(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", list(CALLS))
def test_a_line_s_answer_equals_its_route_s(
    server: Served, sdk: openai.OpenAI, files: Stores, name: str
) -> None:
    url, body = CALLS[name]
    live = server.post(url, body)
    line = {"custom_id": "a", "method": "POST", "url": url, "body": body}
    batch = ended(sdk, create(sdk, files, [line], endpoint=url))
    [found] = lines_of(files, batch.output_file_id or batch.error_file_id)
    assert found["response"]["status_code"] == live.status_code
    assert alike(found["response"]["body"]) == alike(live.json())
    assert list(found["response"]["body"]) == list(live.json())
    assert (batch.output_file_id is None) == (live.status_code >= 400)


def test_ignored_fields_are_reported(sdk: openai.OpenAI, files: Stores) -> None:
    [line] = lines_of(
        files, ended(sdk, create(sdk, files, [chat_line("a", prompt_cache_key="me")])).output_file_id
    )
    assert line["response"]["ignored_params"] == ["prompt_cache_key"]


def test_with_strict_params_they_fail_their_line(tokenizer: Tokenizer) -> None:
    stores = memory_stores()
    with (
        serving(EchoEngine(), tokenizer, stores=stores, strict_params=True) as served,
        served.openai() as sdk,
    ):
        batch = ended(sdk, create(sdk, stores, [chat_line("a", prompt_cache_key="me"), chat_line("b")]))
        assert [line["custom_id"] for line in lines_of(stores, batch.output_file_id)] == ["b"]
        [bad] = lines_of(stores, batch.error_file_id)
    assert bad["response"]["body"]["error"]["code"] == "unsupported_parameter"


def test_a_wrong_file_fails_and_says_why(sdk: openai.OpenAI, files: Stores) -> None:
    batch = ended(sdk, create(sdk, files, [chat_line("a"), chat_line("b", model="other")]))
    assert batch.status == "failed"
    assert batch.failed_at
    assert batch.errors is not None
    assert batch.errors.data is not None
    [error] = batch.errors.data
    assert (error.code, error.line, error.param) == ("model_not_found", 2, "body.model")


def test_a_cancel_answers_cancelling_at_once(tokenizer: Tokenizer) -> None:
    stores = memory_stores()
    with serving(EchoEngine(delay=0.02), tokenizer, stores=stores) as served, served.openai() as sdk:
        batch = create(sdk, stores, [chat_line(f"c{i}", "x" * 300) for i in range(100)])
        assert sdk.batches.cancel(batch.id).status == "cancelling"
        batch = ended(sdk, batch)
        assert batch.status == "cancelled"
        assert len(lines_of(stores, batch.error_file_id)) == 100


def test_an_ended_batch_cannot_be_cancelled(server: Served, sdk: openai.OpenAI, files: Stores) -> None:
    batch = ended(sdk, create(sdk, files, chat_lines(1)))
    with pytest.raises(openai.ConflictError, match="Cannot cancel a batch with status 'completed'") as caught:
        sdk.batches.cancel(batch.id)
    assert caught.value.response.headers["x-should-retry"] == "false"


def test_pages_are_newest_first_and_end(sdk: openai.OpenAI, files: Stores) -> None:
    made = [create(sdk, files, chat_lines(1)).id for _ in range(5)]
    page = sdk.batches.list(limit=2)
    assert [batch.id for batch in page.data] == made[:2:-1]
    assert page.has_more
    listed = [batch.id for batch in sdk.batches.list(limit=2)]
    assert listed[:5] == made[::-1]
    assert len(set(listed)) == len(listed)


def test_a_list_truncates_many_errors(sdk: openai.OpenAI) -> None:
    file = sdk.files.create(file=("in.jsonl", b"no\n" * 300), purpose="batch")
    made = sdk.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
    whole = ended(sdk, made)
    listed = sdk.batches.list(limit=1).data[0]
    every, shown = (batch.errors.data or [] if batch.errors else [] for batch in (whole, listed))
    assert [error.line for error in every] == list(range(1, 301))
    assert shown[:-1] == every[:20]
    assert shown[-1].message == "280 more; the batch itself has them all"


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "after=nonsense", "order=asc"])
def test_a_wrong_query_is_400(server: Served, query: str) -> None:
    reply = httpx.get(f"{server.url}/v1/batches?{query}")
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == query.partition("=")[0]


@pytest.mark.parametrize("path", ["batch_none", "batch_none/cancel", "nonsense"])
def test_an_unknown_id_is_404(server: Served, path: str) -> None:
    method = "POST" if path.endswith("cancel") else "GET"
    reply = httpx.request(method, f"{server.url}/v1/batches/{path}")
    assert reply.status_code == 404
    assert reply.json()["error"].keys() == {"message", "type", "param", "code"}


WRONG: list[tuple[dict[str, Any], str, int]] = [
    ({"endpoint": "/v1/embeddings"}, "endpoint", 400),
    ({"endpoint": "/v1/moderations"}, "endpoint", 400),
    ({"endpoint": None}, "endpoint", 400),
    ({"completion_window": "31d"}, "completion_window", 400),
    ({"completion_window": "0h"}, "completion_window", 400),
    ({"completion_window": "day"}, "completion_window", 400),
    ({"completion_window": "1\u0663h"}, "completion_window", 400),
    ({"input_file_id": "file-none"}, "input_file_id", 404),
    ({"input_file_id": 3}, "input_file_id", 400),
    ({"metadata": {"k" * 65: "v"}}, "metadata." + "k" * 64, 400),
    ({"metadata": {"k": "v" * 513}}, "metadata.k", 400),
    ({"metadata": {str(i): "" for i in range(17)}}, "metadata", 400),
    ({"metadata": {"k": 1}}, "metadata[...]", 400),
    (
        {"output_expires_after": {"anchor": "created_at", "seconds": 3599}},
        "output_expires_after.seconds",
        400,
    ),
    ({"output_expires_after": {"anchor": "now", "seconds": 3600}}, "output_expires_after.anchor", 400),
]


@pytest.mark.parametrize(("fields", "param", "status"), WRONG, ids=str)
def test_a_wrong_body_names_its_field(
    server: Served, files: Stores, fields: dict[str, Any], param: str, status: int
) -> None:
    known = {"endpoint": CHAT, "completion_window": "24h", "input_file_id": "file-none"}
    if status == 400:
        known["input_file_id"] = upload(files, chat_lines(1))
    reply = server.post("/v1/batches", known | fields)
    assert (reply.status_code, reply.json()["error"]["param"]) == (status, param)


@pytest.mark.parametrize(("known", "status"), [({"purpose": "user_data"}, 400), ({"space": "parts"}, 404)])
def test_an_input_must_have_purpose_batch(
    server: Served, files: Stores, known: dict[str, Any], status: int
) -> None:
    file_id = upload(files, chat_lines(1), **known)
    body = {"endpoint": CHAT, "completion_window": "24h", "input_file_id": file_id}
    reply = server.post("/v1/batches", body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (status, "input_file_id")


def test_unknown_fields_are_reported(server: Served, files: Stores) -> None:
    body = {
        "endpoint": CHAT,
        "completion_window": "1h",
        "input_file_id": upload(files, chat_lines(1)),
        "color": 1,
    }
    reply = server.post("/v1/batches", body)
    assert reply.status_code == 200
    assert reply.headers["llmfw-ignored-params"] == "color"


class EmbeddingEcho(EchoEngine):
    """Answers each prompt with one vector, of its length."""

    def __init__(self) -> None:
        super().__init__()
        self.info = msgspec.structs.replace(self.info, task="embed", embedding_size=1)
        self.embedding: list[Any] = []

    def add(self, request: Any) -> None:
        self.embedding.append(request)

    @property
    def has_work(self) -> bool:
        return bool(self.embedding)

    def step(self) -> list[Any]:

        done, self.embedding = self.embedding, []
        return [
            TokenEvent(
                request.id,
                [],
                FinishReason.STOP,
                vectors=b"".join(struct.pack("<f", len(prompt)) for prompt in request.prompts),
            )
            for request in done
            if request.deferrable
        ]


def test_embedding_servers_run_only_embedding_batches(tokenizer: Tokenizer) -> None:
    stores = memory_stores()
    line = {"custom_id": "a", "method": "POST", "url": "/embeddings", "body": {"input": ["hi", "you"]}}
    with serving(EmbeddingEcho(), tokenizer, stores=stores) as served, served.openai() as sdk:
        batch = ended(sdk, create(sdk, stores, [line], endpoint="/v1/embeddings"))
        [found] = lines_of(stores, batch.output_file_id)
        with pytest.raises(openai.BadRequestError, match="embeds; it cannot generate") as caught:
            create(sdk, stores, [line])
    assert [item["embedding"] for item in found["response"]["body"]["data"]] == [[2.0], [3.0]]
    assert caught.value.param == "endpoint"
    assert batch.usage is not None
    assert batch.usage.input_tokens == 5
