"""Messages arrive as they were sent, failures as the exceptions they were."""

from __future__ import annotations

import io
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.core.client.wire import (
    Endpoint,
    Hello,
    Launch,
    decode_from_client,
    decode_from_engine,
    encode,
    error_of,
    failure_of,
    new_endpoint,
    read_launch,
    write_launch,
)
from llmfw.core.config import EngineConfig
from llmfw.core.errors import EngineError, ModelError, PartError, RequestError
from llmfw.core.request import (
    Abort,
    EngineFailed,
    EngineStats,
    FinishReason,
    Request,
    SamplingParams,
    StatsQuery,
    StepOutput,
    TokenEvent,
)

SAMPLING = SamplingParams(
    temperature=0.5, logit_bias={5: -1.5}, stop=("a",), stop_token_ids=(2,), seed=-(2**63)
)


@pytest.mark.parametrize(
    "message",
    [
        Hello(),
        StatsQuery(),
        Abort(["a", "b"]),
        Request(id="a", prompt=[1, 2**20], sampling=SAMPLING, eos_token_ids=(7,), priority=-3),
    ],
)
def test_what_a_client_sends_arrives_as_it_was(message: object) -> None:
    assert decode_from_client(encode(message)) == message


events = st.builds(
    TokenEvent,
    st.text(),
    st.lists(st.integers(0, 2**31)),
    st.none() | st.sampled_from(FinishReason),
    st.integers(0, 2**20),
    st.none() | st.text(),
)


@given(st.lists(events))
def test_what_an_engine_sends_arrives_as_it_was(events: list[TokenEvent]) -> None:
    assert decode_from_engine(encode(StepOutput(events))) == StepOutput(events)
    stats = EngineStats(
        num_running=1, num_waiting=2, num_used_tokens=3, num_cached_tokens=4, num_total_tokens=5
    )
    assert decode_from_engine(encode(stats)) == stats


@pytest.mark.parametrize("error", [ModelError("no such folder"), PartError("x"), RequestError("y")])
def test_an_exception_of_the_tree_arrives_as_itself(error: Exception) -> None:
    arrived = error_of(failure_of(error))
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)


def test_any_other_exception_arrives_as_an_engine_error_with_its_name() -> None:
    arrived = error_of(EngineFailed("OutOfMemoryError", "tried to allocate 5 GB"))
    assert type(arrived) is EngineError
    assert str(arrived) == "OutOfMemoryError: tried to allocate 5 GB"


def test_settings_are_read_from_a_stream_that_stays_open() -> None:
    launch = Launch(EngineConfig(model="m", options={"a.b": "c"}), Endpoint("ipc:///x", "/x"))
    stream = io.BytesIO()
    write_launch(stream, launch)
    stream.write(b"more")
    stream.seek(0)
    assert read_launch(stream) == launch
    assert stream.read() == b"more"


def test_a_stream_that_ends_too_early_is_an_error() -> None:
    with pytest.raises(EOFError, match="stdin ended"):
        read_launch(io.BytesIO(b"\0\0\0\0\0\0\0\x09abc"))


def test_the_socket_lies_where_only_this_user_can_reach_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("deep" * 30)))
    (tmp_path / ("deep" * 30)).mkdir()
    endpoint = new_endpoint()
    assert endpoint.directory is not None
    assert stat.S_IMODE(Path(endpoint.directory).stat().st_mode) == 0o700
    assert len(endpoint.address) < 108
    endpoint.remove()
    assert not Path(endpoint.directory).exists()
