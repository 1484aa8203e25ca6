"""What other servers get wrong in completions and this one does not (OpenAI's SDK relies on each)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import MARKERS, Served, byte_tokenizer, serving
from .test_completions import chunks_of, complete


def test_ids_and_fingerprints_have_their_form(server: Served) -> None:
    one, two = complete(server, prompt="a"), complete(server, prompt="a")
    assert re.fullmatch(r"cmpl-[0-9a-f]{32}", one["id"])
    assert one["id"] != two["id"]
    assert one["system_fingerprint"] == two["system_fingerprint"] != ""


def test_parser_options_change_the_fingerprint(server: Served, tmp_path: Path) -> None:
    with serving(EchoEngine(), byte_tokenizer(tmp_path, MARKERS), options={"tool_parser.mark": "!"}) as other:
        told = {complete(each, prompt="a")["system_fingerprint"] for each in (server, other)}
    assert len(told) == 2


@pytest.mark.parametrize(
    ("fields", "reason"), [({}, "stop"), ({"max_tokens": 2}, "length"), ({"stop": "c"}, "stop")]
)
def test_finish_reasons_are_openai_s_and_true(server: Served, fields: dict[str, Any], reason: str) -> None:
    choice = complete(server, prompt="abcd", **fields)["choices"][0]
    assert choice["finish_reason"] == reason
    extras = {"matched_stop", "stop_reason"}
    assert choice.keys() == {"index", "text", "logprobs", "finish_reason"} | extras
    reasons = [c["choices"][0]["finish_reason"] for c in chunks_of(server, prompt="abcd", **fields)]
    assert reasons[-1] == reason
    assert set(reasons[:-1]) <= {None}


def test_only_streams_are_event_streams(server: Served) -> None:
    for stream, kind in (
        (False, "application/json"),
        (None, "application/json"),
        (True, "text/event-stream"),
    ):
        reply = server.post("/v1/completions", {"prompt": "a", "stream": stream})
        assert reply.headers["content-type"].startswith(kind)


def test_unasked_chunks_have_choices_and_no_usage(server: Served) -> None:
    for chunk in chunks_of(server, prompt=["ab", "c"], n=2):
        assert len(chunk["choices"]) == 1
        assert "usage" not in chunk


def test_streamed_usage_equals_the_whole_reply_s(server: Served) -> None:
    complete(server, prompt=["usage", "of"], n=2)
    whole = complete(server, prompt=["usage", "of"], n=2)["usage"]
    *chunks, last = chunks_of(server, prompt=["usage", "of"], n=2, stream_options={"include_usage": True})
    assert {chunk["usage"] for chunk in chunks} == {None}
    assert (last["choices"], last["usage"]) == ([], whole)
    assert whole["prompt_tokens_details"] == {"cached_tokens": 5}
    assert whole["completion_tokens_details"] == {"reasoning_tokens": 0}


def test_penalties_reach_the_engine_separately(server: Served) -> None:
    complete(server, prompt="a", frequency_penalty=0.5, presence_penalty=-0.5)
    sampling = server.engine.requests[-1].sampling
    assert (sampling.frequency_penalty, sampling.presence_penalty, sampling.repetition_penalty) == (
        0.5,
        -0.5,
        1.0,
    )


def test_the_model_card_names_the_usable_context(server: Served) -> None:
    [card] = httpx.get(f"{server.url}/v1/models").json()["data"]
    limit = card["max_model_len"]
    usage = complete(server, prompt=[65] * (limit - 1), max_tokens=1)["usage"]
    assert usage["total_tokens"] == limit
