"""Streams of the Responses API: the order that OpenAI documents, and that its SDK's strict helper asks for."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import openai
from hypothesis import given
from hypothesis import strategies as st
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from llmfw.api.responses.ids import new_response_id
from llmfw.api.responses.output import Output
from llmfw.api.schemas.responses import MessageItem
from llmfw.core.interfaces.parsers import ContentDelta, ReasoningDelta, ToolCallDelta

from ..doubles.serving import SERVED_NAME, Served, wait_until

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
TOOL: Any = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}
CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'


def frames(server: Served, **fields: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return the name and the data of each event."""
    text = server.post("/v1/responses", {"stream": True, **fields}).text
    found = [frame.split("\n", 1) for frame in text.removesuffix("\n\n").split("\n\n")]
    return [
        (name.removeprefix("event: "), msgspec.json.decode(data.removeprefix("data: ")))
        for name, data in found
    ]


def test_message_events_have_the_documented_order(server: Served) -> None:
    events = frames(server, input="hi")
    assert [name for name, _ in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [data["sequence_number"] for _, data in events] == list(range(len(events)))
    assert all(data["type"] == name for name, data in events)


def test_every_event_matches_the_sdk_s_type(server: Served) -> None:
    events = frames(server, input=f"<think>hm</think>Look: {CALL}", tools=[TOOL])
    for name, data in events:
        assert EVENT.validate_python(data).type == name
    assert {name for name, _ in events} >= {
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
    }


def test_the_helper_s_final_response_is_stored(sdk: openai.OpenAI) -> None:
    text = f"<think>hm</think>Look: {CALL}"
    with sdk.responses.stream(model=SERVED_NAME, input=text, tools=[TOOL]) as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert "".join(deltas) == final.output_text == "Look:"
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    stored = sdk.responses.retrieve(final.id)
    assert [item.id for item in stored.output] == [item.id for item in final.output]
    assert stored.usage == final.usage


def test_a_truncated_stream_ends_incomplete(sdk: openai.OpenAI) -> None:
    with sdk.responses.stream(model=SERVED_NAME, input="hello", max_output_tokens=2) as stream:
        last = list(stream)[-1]
    assert last.type == "response.incomplete"
    assert (last.response.output_text, last.response.incomplete_details.reason) == ("he", "max_output_tokens")


def test_a_stream_equals_the_reply(server: Served) -> None:
    body = {"input": f"<think>hm</think>Look: {CALL}", "tools": [TOOL]}
    whole = server.post("/v1/responses", body).json()
    last = frames(server, **body)[-1][1]["response"]
    assert last.keys() == whole.keys()
    assert [item["type"] for item in last["output"]] == [item["type"] for item in whole["output"]]
    assert last["usage"]["output_tokens"] == whole["usage"]["output_tokens"]


def test_delta_logprobs_join_to_the_text_s(server: Served) -> None:
    events = frames(server, input="<think>hm</think>Größe", top_logprobs=1)
    deltas = [data for name, data in events if name == "response.output_text.delta"]
    [done] = [data for name, data in events if name == "response.output_text.done"]
    assert [entry for data in deltas for entry in data["logprobs"]] == done["logprobs"]
    in_item = events[-1][1]["response"]["output"][1]["content"][0]["logprobs"]
    assert [(e["token"], e["logprob"]) for e in in_item] == [
        (e["token"], e["logprob"]) for e in done["logprobs"]
    ]
    assert len(done["logprobs"]) == len("Größe".encode())


def test_a_disconnected_stream_is_aborted_and_not_stored(server: Served) -> None:
    before = len(server.engine.aborted)
    with server.openai() as sdk:
        stream = sdk.responses.create(model=SERVED_NAME, input="x" * 200, stream=True)
        response_id = next(iter(stream)).response.id
        stream.close()
    wait_until(lambda: len(server.engine.aborted) == before + 1)
    assert httpx.get(f"{server.url}/v1/responses/{response_id}").status_code == 404


def test_a_wrong_request_does_not_start_a_stream(server: Served) -> None:
    reply = server.post("/v1/responses", {"input": "x", "stream": True, "top_p": 7})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "top_p")


texts = st.text(max_size=3)
runs = st.one_of(
    st.lists(st.builds(ContentDelta, texts), min_size=1, max_size=3),
    st.lists(st.builds(ReasoningDelta, texts), min_size=1, max_size=3),
    st.lists(texts, min_size=1, max_size=3),  # of a call's arguments
)


def deltas_of(runs: list[list[Any]]) -> list[Any]:
    """Return the deltas that a parser could give: calls are numbered, and only their first delta has a name."""
    deltas: list[Any] = []
    calls = 0
    for run in runs:
        if isinstance(run[0], str):
            deltas += [ToolCallDelta(calls, None if i else "f", text) for i, text in enumerate(run)]
            calls += 1
        else:
            deltas += run
    return deltas


@given(st.lists(runs, max_size=5).map(deltas_of), st.sampled_from(["completed", "incomplete"]))
def test_the_strict_helper_accepts_any_generation(deltas: list[Any], status: str) -> None:
    output = Output(new_response_id())
    events = [event for delta in deltas for event in output.add(delta)]
    events += output.finish(status)
    state: Any = ResponseStreamState(input_tools=[], text_format=openai.omit)
    base = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": []}
    shown: dict[str, Any] = {**base, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    ended = {"type": "response.completed", "response": {**shown, "output": output.items}}
    created = {"type": "response.created", "response": shown}
    for number, event in enumerate([created, *events, ended]):
        data = msgspec.json.decode(msgspec.json.encode({**event, "sequence_number": number}))
        state.handle_event(EVENT.validate_python(data))
    final = state._completed_response.output
    text = "".join(delta.text for delta in deltas if isinstance(delta, ContentDelta))
    assert "".join(item.content[0].text for item in final if item.type == "message") == text
    assert len(final) == len(output.items) >= 1
    assert all(item.status == "completed" for item in output.items[:-1])
    assert output.items[-1].status == status


def test_an_empty_answer_is_one_empty_message() -> None:
    output = Output(new_response_id())
    assert list(output.finish("completed"))[-1]["type"] == "response.output_item.done"
    [item] = output.items
    assert isinstance(item, MessageItem)
    assert item.content[0].text == ""
