"""The events of background responses: they go on without a reader, and can be read again from any of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from llmfw.api.responses.event_log import EventLog, EventLogs
from llmfw.api.schemas.responses import Response
from llmfw.core.base.errors import RequestError
from llmfw.plugins.store_sqlite.responses import SqliteResponses

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import SERVED_NAME, Served, byte_tokenizer, serving, wait_until

TEXT = "a text of some length"
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(EchoEngine(delay=0.02), byte_tokenizer(tmp_path_factory.mktemp("model"))) as served:
        yield served


def begin(sdk: openai.OpenAI, input: str = TEXT) -> Any:
    return sdk.responses.create(model=SERVED_NAME, input=input, background=True, stream=True)


def rest(sdk: openai.OpenAI, response_id: str, **fields: Any) -> list[Any]:
    return list(sdk.responses.retrieve(response_id, stream=True, **fields))


def test_a_background_response_can_be_streamed(slow: Served) -> None:
    with slow.openai() as sdk:
        events = list(begin(sdk))
    assert [event.type for event in events[:3]] == [
        "response.created",
        "response.queued",
        "response.in_progress",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == TEXT
    assert (events[-1].type, events[-1].response.output_text) == ("response.completed", TEXT)
    for event in events:
        EVENT.validate_python(event.to_dict())


def test_a_stream_resumes_during_and_after_its_run(slow: Served) -> None:
    with slow.openai() as sdk:
        stream = begin(sdk)
        seen = [next(iter(stream)) for _ in range(6)]
        stream.close()
        response_id = seen[0].response.id
        running = rest(sdk, response_id, starting_after=seen[-1].sequence_number)
        assert slow.engine.aborted == []
        ended = rest(sdk, response_id, starting_after=seen[-1].sequence_number)
        assert running == ended
        assert seen + running == rest(sdk, response_id)
        assert rest(sdk, response_id, starting_after=running[-1].sequence_number) == []


def test_events_of_unstreamed_responses_can_be_read(slow: Served) -> None:
    with slow.openai() as sdk:
        made = sdk.responses.create(model=SERVED_NAME, input=TEXT, background=True)
        assert rest(sdk, made.id)[-1].type == "response.completed"


def test_the_strict_helper_resumes(slow: Served) -> None:
    with slow.openai() as sdk:
        made = sdk.responses.create(model=SERVED_NAME, input=TEXT, background=True)
        with sdk.responses.stream(response_id=made.id) as stream:
            assert stream.get_final_response().output_text == TEXT


@pytest.mark.parametrize("end", ["cancel", "delete"])
def test_stopping_a_response_ends_its_stream(slow: Served, end: str) -> None:
    with slow.openai() as sdk:
        stream = iter(begin(sdk, "x" * 300))
        response_id = next(stream).response.id
        getattr(sdk.responses, end)(response_id)
        last = list(stream)[-1]
    assert (last.type, last.response.status) == ("response.failed", "cancelled")
    wait_until(lambda: not slow.engine.has_work)


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("stream=true&starting_after=99", "starting_after"),
        ("stream=true&starting_after=-1", "starting_after"),
        ("stream=true&starting_after=x", "starting_after"),
        ("starting_after=1", "starting_after"),
        ("stream=maybe", "stream"),
    ],
)
def test_a_wrong_position_is_named(slow: Served, query: str, param: str) -> None:
    with slow.openai() as sdk:
        made = sdk.responses.create(model=SERVED_NAME, input="a", background=True)
        rest(sdk, made.id)
    reply = httpx.get(f"{slow.url}/v1/responses/{made.id}?{query}")
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


def test_foreground_responses_have_no_events(slow: Served) -> None:
    made = slow.post("/v1/responses", {"input": "x"}).json()
    reply = httpx.get(f"{slow.url}/v1/responses/{made['id']}?stream=true")
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "stream")
    assert httpx.get(f"{slow.url}/v1/responses/none?stream=true").status_code == 404


def test_responses_survive_a_restart_without_events(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer(tmp_path)
    with (
        serving(EchoEngine(), tokenizer, stores={"responses": SqliteResponses(tmp_path, 2**20)}) as served,
        served.openai() as sdk,
    ):
        response_id = list(begin(sdk))[-1].response.id
    with (
        serving(EchoEngine(), tokenizer, stores={"responses": SqliteResponses(tmp_path, 2**20)}) as served,
        served.openai() as sdk,
    ):
        assert sdk.responses.retrieve(response_id).output_text == TEXT
        with pytest.raises(openai.BadRequestError, match="not over a restart"):
            rest(sdk, response_id)


RESPONSE = Response(
    id="resp_1",
    created_at=1,
    status="queued",
    metadata={},
    model="m",
    parallel_tool_calls=True,
    reasoning={},
    store=True,
    temperature=1.0,
    text={},
    tool_choice="auto",
    tools=[],
    top_p=1.0,
)


def numbered(log: EventLog, after: int) -> list[bytes]:
    async def read() -> list[bytes]:
        return [data async for data in log.read(after)]

    return b"".join(asyncio.run(read())).split(b"\n\n")[:-1]


def test_a_full_log_keeps_the_newest_events() -> None:
    log = EventLog(RESPONSE, max_bytes=2000)
    for _ in range(100):
        log.add([{"type": "delta", "delta": "x"}])
        assert log.num_bytes <= 2000
    log.end("completed")
    with pytest.raises(RequestError, match=r"the numbers from ([1-9][0-9]*) to 100") as caught:
        log.check(0)
    first = int(str(caught.value).split("from ")[1].split()[0])
    kept = numbered(log, first)
    assert len(kept) == 100 - first
    assert b'"sequence_number":%d' % (first + 1) in kept[0]


def test_a_too_slow_reader_gets_an_error() -> None:
    async def read() -> None:
        log = EventLog(RESPONSE, max_bytes=2000)
        log.add([{"type": "delta"}])
        reader = log.read(-1)
        await anext(reader)
        log.add([{"type": "delta"}] * 100)
        await anext(reader)

    with pytest.raises(RequestError, match="starting_after is 0"):
        asyncio.run(read())


def test_the_oldest_ended_log_is_dropped_first() -> None:
    logs = EventLogs(max_ended=3000)
    running = logs.open(RESPONSE)
    for i in range(20):
        response = Response(**{name: getattr(RESPONSE, name) for name in RESPONSE.__struct_fields__})
        response.id = f"resp_{i + 2}"
        logs.open(response).end("completed")
    assert logs.find("resp_1") is running
    assert logs.find("resp_2") is None
    assert logs.find("resp_21") is not None
