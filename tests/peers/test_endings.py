"""`matched_stop`, as SGLang sends it, and `stop_reason`, as vLLM does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ..doubles.echo_engine import EOS, EchoEngine
from ..doubles.serving import Served, byte_tokenizer, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(EchoEngine(), byte_tokenizer(tmp_path_factory.mktemp("model"))) as served:
        yield served


def ask(server: Served, route: str, stream: bool, **fields: Any) -> dict[str, Any]:
    """Return the last choice of a reply, or of the chunks that have one."""
    prompt = (
        {"prompt": "abcd"} if route == "completions" else {"messages": [{"role": "user", "content": "abcd"}]}
    )
    path = "/v1/completions" if route == "completions" else "/v1/chat/completions"
    reply = server.post(path, {**prompt, **fields, "stream": stream})
    assert reply.status_code == 200, reply.text
    if not stream:
        return dict(reply.json()["choices"][-1])
    *frames, _ = reply.text.removesuffix("\n\n").split("\n\n")
    chunks = [json.loads(frame.removeprefix("data: ")) for frame in frames]
    assert all("matched_stop" not in chunk["choices"][0] for chunk in chunks[:-1])
    return dict(chunks[-1]["choices"][-1])


@pytest.mark.parametrize("route", ["chat", "completions"])
@pytest.mark.parametrize("stream", [False, True])
class TestEndings:
    def test_a_stop_string_is_named(self, server: Served, route: str, stream: bool) -> None:
        choice = ask(server, route, stream, stop=["x", "c"])
        assert (choice["matched_stop"], choice["stop_reason"]) == ("c", "c")
        assert choice["finish_reason"] == "stop"

    def test_the_model_s_end_is_no_stop_reason(self, server: Served, route: str, stream: bool) -> None:
        choice = ask(server, route, stream)
        assert (choice["matched_stop"], choice["stop_reason"]) == (EOS, None)

    def test_an_end_by_length_matches_nothing(self, server: Served, route: str, stream: bool) -> None:
        choice = ask(server, route, stream, max_tokens=2)
        assert choice["matched_stop"] is choice["stop_reason"] is None
        assert choice["finish_reason"] == "length"


def test_a_token_beyond_the_end_is_a_reason(server: Served) -> None:
    """With `ignore_eos`, the model's end only ends the text as one of `stop_token_ids`."""
    body = {"prompt": "abcd", "stop_token_ids": [EOS], "ignore_eos": True}
    choice = server.post("/v1/completions", body).json()["choices"][0]
    assert choice["matched_stop"] == choice["stop_reason"] == EOS


def test_a_scored_prompt_matches_nothing(server: Served) -> None:
    choice = server.post("/v1/completions", {"prompt": "ab", "echo": True, "max_tokens": 0}).json()[
        "choices"
    ][0]
    assert choice["matched_stop"] is choice["stop_reason"] is None
