"""Messages arrive as they were sent, failures as the exceptions they were."""

from __future__ import annotations

import io
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.core.base.config import EngineConfig
from llmfw.core.base.control import (
    Answer,
    CacheView,
    Command,
    FlushCache,
    GetPolicy,
    GetTrace,
    PinInfo,
    PinPrefix,
    PolicyInfo,
    PrefixInfo,
    RequestTrace,
    SetPolicy,
    TraceEntry,
    UnpinPrefix,
    ViewCache,
)
from llmfw.core.base.engine_info import ControlAnswer, EngineFailed, EngineStats
from llmfw.core.base.errors import ComponentError, EngineError, ModelError, RequestError
from llmfw.core.base.request import (
    Abort,
    Control,
    EventBatch,
    FinishReason,
    Request,
    SamplingParams,
    StatsQuery,
    TokenEvent,
)
from llmfw.core.base.steps_view import RequestView, StepsView, StepView, ViewSteps
from llmfw.core.ipc.request_decoder import RequestDecoder
from llmfw.core.ipc.wire import (
    Frames,
    Launch,
    decode_from_engine,
    encode,
    error_of,
    failure_of,
    framed,
    new_pair,
    read_launch,
    write_launch,
)

SAMPLING = SamplingParams(
    temperature=0.5, logit_bias={5: -1.5}, stop=("a",), stop_token_ids=(2,), seed=-(2**63)
)


@pytest.mark.parametrize(
    "message",
    [
        StatsQuery(),
        Abort(["a", "b"]),
        Request(id="a", prompt=[1, 2**20], sampling=SAMPLING, eos_token_ids=(7,), priority=-3),
    ],
)
def test_client_messages_arrive_unchanged(message: object) -> None:
    assert RequestDecoder().decode(encode(message)) == message


events = st.builds(
    TokenEvent,
    st.text(),
    st.lists(st.integers(0, 2**31)),
    st.none() | st.sampled_from(FinishReason),
    st.integers(0, 2**20),
    st.none() | st.text(),
)


@given(st.lists(events))
def test_engine_messages_arrive_unchanged(events: list[TokenEvent]) -> None:
    assert decode_from_engine(encode(EventBatch(events))) == EventBatch(events)
    stats = EngineStats(
        num_running=1, num_waiting=2, num_used_tokens=3, num_cached_tokens=4, num_total_tokens=5
    )
    assert decode_from_engine(encode(stats)) == stats


COMMANDS = [
    GetPolicy(),
    SetPolicy("lpm", {"max_overtaken": "9"}),
    ViewCache(7),
    FlushCache(),
    PinPrefix([1, 2**20], 60.5, "salt"),
    UnpinPrefix("pin-1"),
    GetTrace("chatcmpl-1-0"),
    ViewSteps(7),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_a_command_arrives_unchanged(command: Command) -> None:
    assert RequestDecoder().decode(encode(Control(2**40, command))) == Control(2**40, command)


ANSWERS = [
    PolicyInfo("lpm", {"a": "b"}, "it raised", ["fcfs", "lpm"]),
    PinInfo("pin-1", 12, 4, 59.5),
    CacheView(9, 4, 4, 2, 0, 3, 12, "lru", [PrefixInfo(9, 4, 0, 3, 0.5, 1, True, "s", [1], [2])]),
    RequestTrace("a", 1e9, 7, [TraceEntry("waits", 0.5, 1.5, 3, 9, "no place", 0, 4)], 1),
    StepsView(
        [StepView(8, 1e9, [0, 3], [1, 16], [0, 1])],
        [RequestView(0, "a-0", "ann", True, 9, 12, 11)],
        [RequestView(4, "b-0", "", False, 9, 9, 0, "no place")],
        [RequestView(3, "c-0", "", False, 16, 17, 16)],
        5,
    ),
]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: type(answer).__name__)
def test_an_answer_arrives_unchanged(answer: Answer) -> None:
    assert decode_from_engine(encode(ControlAnswer(7, answer))) == ControlAnswer(7, answer)


def test_a_request_error_keeps_parameter_and_code() -> None:
    arrived = error_of(failure_of(RequestError("y", param="options.a", code="unknown")))
    assert isinstance(arrived, RequestError)
    assert (arrived.param, arrived.code) == ("options.a", "unknown")


@pytest.mark.parametrize("error", [ModelError("no such folder"), ComponentError("x"), RequestError("y")])
def test_llmfw_errors_arrive_as_their_class(error: Exception) -> None:
    arrived = error_of(failure_of(error))
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)


def test_other_exceptions_arrive_as_engine_errors() -> None:
    arrived = error_of(EngineFailed("OutOfMemoryError", "tried to allocate 5 GB"))
    assert type(arrived) is EngineError
    assert str(arrived) == "OutOfMemoryError: tried to allocate 5 GB"


def test_settings_are_read_from_an_open_stream() -> None:
    launch = Launch(EngineConfig(model="m", options={"a.b": "c"}), [7])
    stream = io.BytesIO()
    write_launch(stream, launch)
    stream.write(b"more")
    stream.seek(0)
    assert read_launch(stream) == launch
    assert stream.read() == b"more"


def test_a_truncated_stream_is_an_error() -> None:
    with pytest.raises(EOFError, match="stdin ended"):
        read_launch(io.BytesIO(b"\0\0\0\0\0\0\0\x09abc"))


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(1, 60)))
def test_payloads_arrive_whole_in_any_chunks(payloads: list[bytes], cuts: list[int]) -> None:
    stream, frames, arrived = b"".join(map(framed, payloads)), Frames(), []
    for size in [*cuts, len(stream)]:
        arrived += frames.feed(stream[:size])
        stream = stream[size:]
    assert arrived == payloads
    assert not frames.has_begun


def test_a_partial_payload_is_noticed() -> None:
    frames = Frames()
    assert frames.feed(framed(b"abc")[:-1]) == []
    assert frames.has_begun


def test_a_pair_is_private() -> None:
    ours, theirs = new_pair()
    with ours, theirs:
        ours.send(b"x")
        assert theirs.recv(9) == b"x"
        assert not ours.getsockname()
        assert not os.get_inheritable(ours.fileno())
