"""Reasoning as clients of SGLang and vLLM ask for it and read it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import Served, byte_tokenizer, serving

THOUGHT = "<think>\nHmm.\n</think>\n\nYes."


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server without parsers."""
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("model"))
    with serving(EchoEngine(), tokenizer, reasoning_parser=None, tool_parser=None) as served:
        yield served


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose reasoning has both names."""
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("model"))
    with serving(EchoEngine(), tokenizer, reasoning_field="both") as served:
        yield served


def message(server: Served, text: str, **fields: Any) -> dict[str, Any]:
    return dict(server.chat(text, **fields).json()["choices"][0]["message"])


def deltas(server: Served, text: str, **fields: Any) -> list[dict[str, Any]]:
    lines = server.chat(text, stream=True, **fields).text.splitlines()
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    return [choice["delta"] for chunk in chunks for choice in chunk["choices"]]


def test_missing_reasoning_is_null(server: Served) -> None:
    assert message(server, "Hi")["reasoning_content"] is None
    assert message(server, THOUGHT)["reasoning_content"] == "Hmm."
    assert message(server, THOUGHT, separate_reasoning=False)["reasoning_content"] is None
    for text in ("Hi", THOUGHT):
        assert all("reasoning_content" in delta for delta in deltas(server, text))
    assert [delta["reasoning_content"] for delta in deltas(server, "Hi")] == [None] * 4  # role, H, i, end


def test_without_a_parser_the_reasoning_field_is_absent(plain: Served) -> None:
    assert "reasoning_content" not in message(plain, "Hi")
    assert not any("reasoning_content" in delta for delta in deltas(plain, "Hi"))
    assert "reasoning_tokens" not in plain.chat("Hi").json()["usage"]


def test_usage_has_reasoning_tokens_in_both_places(server: Served) -> None:
    usage = server.chat(THOUGHT).json()["usage"]
    assert usage["reasoning_tokens"] == usage["completion_tokens_details"]["reasoning_tokens"] > 0
    streamed = server.chat(THOUGHT, stream=True, stream_options={"include_usage": True}).text
    assert f'"reasoning_tokens":{usage["reasoning_tokens"]}}},"reasoning_tokens":' in streamed


def test_excluded_reasoning_is_counted_but_hidden(server: Served) -> None:
    reply = server.chat(THOUGHT, include_reasoning=False).json()
    shown = reply["choices"][0]["message"]
    assert (shown["content"], shown["reasoning_content"]) == ("Yes.", None)
    assert reply["usage"]["reasoning_tokens"] > 0
    pieces = deltas(server, THOUGHT, include_reasoning=False)
    assert "".join(delta.get("content", "") for delta in pieces) == "Yes."
    assert not any(delta["reasoning_content"] for delta in pieces)
    assert message(server, THOUGHT, include_reasoning=True)["reasoning_content"] == "Hmm."


def test_unexcludable_reasoning_is_refused(server: Served, plain: Served) -> None:
    for reply in (
        plain.chat("Hi", include_reasoning=False),
        server.chat("Hi", include_reasoning=False, separate_reasoning=False),
    ):
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "include_reasoning")
    assert plain.chat("Hi", include_reasoning=True).status_code == 200


@pytest.mark.parametrize("text", [THOUGHT, "<think>\nHmm."])
def test_unstreamed_reasoning_is_one_delta(server: Served, text: str) -> None:
    thoughts = [delta["reasoning_content"] for delta in deltas(server, text) if delta["reasoning_content"]]
    assert len(thoughts) > 1
    pieces = deltas(server, text, stream_reasoning=False)
    whole = [delta["reasoning_content"] for delta in pieces if delta["reasoning_content"]]
    assert whole == ["".join(thoughts)]
    assert message(server, text, stream_reasoning=False) == message(server, text)


@pytest.mark.parametrize("more", [{}, {"stream_reasoning": False}])
def test_both_names_are_in_each_delta(both: Served, more: dict[str, Any]) -> None:
    pieces = deltas(both, THOUGHT, **more)
    assert all(delta["reasoning_content"] == delta["reasoning"] for delta in pieces)
    thoughts = [delta["reasoning"] for delta in pieces if delta["reasoning"] is not None]
    assert "".join(thoughts) == "Hmm."
    assert "".join(delta.get("content", "") for delta in pieces) == "Yes."
    if more:
        assert thoughts == ["Hmm."]
    assert [delta["reasoning"] for delta in deltas(both, "Hi")] == [None] * 4  # role, H, i, end
    whole = message(both, THOUGHT, **more)
    assert whole["reasoning_content"] == whole["reasoning"] == "Hmm."
    plain = message(both, "Hi", **more)
    assert plain["reasoning_content"] is plain["reasoning"] is None


def test_logprobs_do_not_depend_on_shown_reasoning(server: Served) -> None:
    shown = [
        server.chat(THOUGHT, logprobs=True, **fields).json()["choices"][0]["logprobs"]
        for fields in ({}, {"include_reasoning": False}, {"stream_reasoning": False})
    ]
    assert shown[0]["content"]
    assert shown[0] == shown[1] == shown[2]


def test_reasoning_is_read_despite_a_null_alias(tmp_path: Any) -> None:
    template = "{{ messages[0].reasoning_content }}"
    with serving(EchoEngine(), byte_tokenizer(tmp_path), template, reasoning_parser=None) as served:
        past = {"role": "assistant", "content": "a", "reasoning": "Hm", "reasoning_content": None}
        reply = served.post("/v1/chat/completions", {"messages": [past]}).json()
    assert reply["choices"][0]["message"]["content"] == "Hm"
