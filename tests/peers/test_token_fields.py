"""Fields about single tokens, in the form in which clients of vLLM read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ..doubles.echo_engine import EOS, EchoEngine, score
from ..doubles.serving import Served, byte_tokenizer, serving
from .wire import ROUTES, ask, chunks_of, error_of, text_of


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(EchoEngine(), byte_tokenizer(tmp_path_factory.mktemp("model"))) as served:
        yield served


def ids_of(server: Served, text: str) -> list[int]:
    return server.tokenizer.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("route", ROUTES)
class TestTokenIds:
    def test_a_reply_has_prompt_and_output_ids(self, server: Served, route: str) -> None:
        body = ask(server, route, "abé", return_token_ids=True)
        [choice] = body["choices"]
        assert choice["token_ids"] == [*ids_of(server, "abé"), EOS]
        assert (choice if route == "completions" else body)["prompt_token_ids"] == ids_of(server, "abé")

    def test_chunks_contain_each_token_id_once(self, server: Served, route: str) -> None:
        chunks = chunks_of(server, route, "abé stop", return_token_ids=True, stop="xx", n=2)
        for index in range(2):
            choices = [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]
            sent = [token_id for choice in choices for token_id in choice.get("token_ids", [])]
            assert sent == [*ids_of(server, "abé stop"), EOS]
        first = chunks[0]["choices"][0] if route == "completions" else chunks[0]
        assert first["prompt_token_ids"] == ids_of(server, "abé stop")

    def test_logprobs_are_absent_by_default(self, server: Served, route: str) -> None:
        body = ask(server, route, "ab", return_token_ids=False)
        assert "token_ids" not in body["choices"][0]
        assert not {"prompt_token_ids", "prompt_logprobs"} & (body.keys() | body["choices"][0].keys())


@pytest.mark.parametrize("route", ROUTES)
class TestPromptLogprobs:
    @pytest.mark.parametrize("num", [0, 2])
    def test_prompt_tokens_after_the_first_have_logprobs(self, server: Served, route: str, num: int) -> None:
        body = ask(server, route, "abc", prompt_logprobs=num)
        found = (body["choices"][0] if route == "completions" else body)["prompt_logprobs"]
        _, b, c = ids_of(server, "abc")
        assert found[0] is None
        assert found[1][str(b)]["logprob"] == score(b, num).logprob
        assert [list(place) for place in found[1:]] == [
            [str(each + i) for i in range(max(num, 1))] for each in (b, c)
        ]
        assert found[2][str(c)]["decoded_token"] == "c"
        assert server.engine.requests[-1].prompt_logprobs == num

    @pytest.mark.parametrize("value", [True, 21, -1])
    def test_other_values_are_refused(self, server: Served, route: str, value: object) -> None:
        assert error_of(server, route, "abc", prompt_logprobs=value)["param"] == "prompt_logprobs"

    def test_streams_refuse_prompt_logprobs(self, server: Served, route: str) -> None:
        error = error_of(server, route, "abc", prompt_logprobs=0, stream=True)
        assert error["param"] == "prompt_logprobs"
        assert "stream" in error["message"]


def test_each_choice_has_its_prompts_logprobs(server: Served) -> None:
    body = {"prompt": ["ab", "cd"], "n": 2, "prompt_logprobs": 0, "echo": True, "logprobs": 1}
    choices = server.post("/v1/completions", body).json()["choices"]
    wanted = [str(ids_of(server, text)[1]) for text in ("ab", "ab", "cd", "cd")]
    assert [list(choice["prompt_logprobs"][1]) for choice in choices] == [[each] for each in wanted]
    assert [len(choice["logprobs"]["top_logprobs"][1]) for choice in choices] == [1] * 4


def test_chats_name_tokens_by_their_ids(server: Served) -> None:
    fields = {"logprobs": True, "top_logprobs": 1, "return_tokens_as_token_ids": True}
    entry = ask(server, "chat", "a", **fields)["choices"][0]["logprobs"]["content"][0]
    [token_id] = ids_of(server, "a")
    assert entry["token"] == entry["top_logprobs"][0]["token"] == f"token_id:{token_id}"
    assert entry["bytes"] == [ord("a")]
    [streamed] = [
        c["choices"][0]["logprobs"]["content"][0]
        for c in chunks_of(server, "chat", "a", **fields)
        if c["choices"][0]["logprobs"]
    ]
    assert streamed == entry


def test_completions_name_tokens_by_their_ids(server: Served) -> None:
    fields = {"logprobs": 1, "echo": True, "return_tokens_as_token_ids": True}
    found = ask(server, "completions", "ab", **fields)["choices"][0]["logprobs"]
    a, b = (f"token_id:{each}" for each in ids_of(server, "ab"))
    assert found["tokens"] == [a, b, a, b, f"token_id:{EOS}"]
    assert list(found["top_logprobs"][1]) == [b]


@pytest.mark.parametrize("route", ROUTES)
class TestContinuousUsage:
    def test_each_chunk_counts_tokens_so_far(self, server: Served, route: str) -> None:
        chunks = chunks_of(server, route, "abc", stream_options={"continuous_usage_stats": True})
        counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
        assert counts == sorted(counts)
        assert counts[-1] == 4
        assert all(chunk["choices"] and chunk["usage"]["prompt_tokens"] == 3 for chunk in chunks)

    def test_the_last_chunk_needs_include_usage(self, server: Served, route: str) -> None:
        options = {"continuous_usage_stats": True, "include_usage": True}
        *_, before, last = chunks_of(server, route, "abc", stream_options=options)
        assert last["choices"] == []
        assert last["usage"] == before["usage"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_echoes_the_continued_message(server: Served, stream: bool) -> None:
    messages = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": [{"type": "text", "text": "ab"}]},
    ]
    fields = {
        "messages": messages,
        "echo": True,
        "continue_final_message": True,
        "add_generation_prompt": False,
    }
    if stream:
        text = "".join(text_of(chunk["choices"][0]) for chunk in chunks_of(server, "chat", "", **fields))
    else:
        text = text_of(ask(server, "chat", "", **fields)["choices"][0])
    assert text == "abab"  # the double answers with its prompt


def test_a_chat_does_not_echo_user_messages(server: Served) -> None:
    assert text_of(ask(server, "chat", "ab", echo=True)["choices"][0]) == "ab"


@pytest.mark.parametrize("route", ROUTES)
def test_limits_of_tokens_reach_the_engine(server: Served, route: str) -> None:
    ask(server, route, "a", bad_words=["ab", "c"])
    a, b, c, space = ids_of(server, "abc ")
    words = server.engine.requests[-1].sampling.bad_words
    assert words == ((a, b), (space, a, b), (c,), (space, c))
    ask(server, route, "a", allowed_token_ids=[a, b])
    assert server.engine.requests[-1].sampling.allowed_token_ids == (a, b)
    assert error_of(server, route, "a", allowed_token_ids=[])["param"] == "allowed_token_ids"
    assert error_of(server, route, "a", bad_words=["x", " "])["param"] == "bad_words[1]"
    assert error_of(server, route, "a", bad_words=["x" * 4097])["param"] == "bad_words"


@pytest.mark.parametrize("route", ROUTES)
class TestTruncation:
    def test_truncation_keeps_the_last_tokens(self, server: Served, route: str) -> None:
        body = ask(server, route, "abcdef", truncate_prompt_tokens=2)
        assert server.engine.requests[-1].prompt == ids_of(server, "ef")
        assert body["usage"]["prompt_tokens"] == 2
        ask(server, route, "abcdef", truncate_prompt_tokens=9)
        assert server.engine.requests[-1].prompt == ids_of(server, "abcdef")

    def test_truncation_keeps_as_much_as_fits(self, server: Served, route: str) -> None:
        context = server.engine.info.max_model_len
        ask(server, route, "ab" * context, truncate_prompt_tokens=-1, max_tokens=12)
        assert server.engine.requests[-1].prompt == ids_of(server, "ab" * (context // 2 - 6))

    def test_other_lengths_are_refused(self, server: Served, route: str) -> None:
        for wrong in (0, -2):
            error = error_of(server, route, "ab", truncate_prompt_tokens=wrong)
            assert error["param"] == "truncate_prompt_tokens"

    def test_a_hopelessly_long_prompt_is_refused(self, server: Served, route: str) -> None:
        error = error_of(server, route, "a" * (2**19 + 1), truncate_prompt_tokens=5)
        assert error["code"] == "context_length_exceeded"
        assert "longest prompt that is truncated" in error["message"]


def test_the_echo_of_a_truncated_prompt_is_short(server: Served) -> None:
    choice = ask(server, "completions", "abcd", truncate_prompt_tokens=2, echo=True, max_tokens=1)["choices"][
        0
    ]
    assert choice["text"] == "cdc"


@pytest.mark.parametrize("route", ROUTES)
def test_beam_search_is_refused(server: Served, route: str) -> None:
    error = error_of(server, route, "a", use_beam_search=True)
    assert (error["param"], error["code"]) == ("use_beam_search", "unsupported_parameter")


@pytest.mark.parametrize("route", ROUTES)
def test_constrained_logprobs_reach_the_engine(server: Served, route: str) -> None:
    ask(server, route, "a", logprobs=1 if route == "completions" else True, constrained_logprobs=True)
    assert server.engine.requests[-1].constrained_logprobs


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("fields", [{}, {"prompt_logprobs": 1}])
def test_constrained_logprobs_need_logprobs(server: Served, route: str, fields: dict[str, Any]) -> None:
    error = error_of(server, route, "a", constrained_logprobs=True, **fields)
    assert error["param"] == "constrained_logprobs"
    assert "needs logprobs to be set" in error["message"]
