"""Log probabilities of named tokens: vLLM's `logprob_token_ids`, and `token_ids_logprob` of SGLang's /generate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ..doubles.echo_engine import EchoEngine, score
from ..doubles.serving import Served, byte_tokenizer, serving
from .generate import events_of, generate, refusal_of
from .wire import ROUTES, ask, chunks_of, error_of

SCORED = {"return_logprob": True, "logprob_start_len": 0}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(EchoEngine(), byte_tokenizer(tmp_path_factory.mktemp("model"))) as served:
        yield served


def ids_of(server: Served, text: str) -> list[int]:
    return server.tokenizer.encode(text, add_special_tokens=False)


def row(token_id: int, ids: list[int]) -> list[list[Any]]:
    """Return what /generate says of named tokens at the position of a token."""
    logprobs = score(token_id, 0, ids).given_logprobs
    return [[logprob, each, None] for logprob, each in zip(logprobs, ids, strict=True)]


def switch(route: str, num: int = 5) -> dict[str, Any]:
    return {"logprobs": True, "top_logprobs": num} if route == "chat" else {"logprobs": num}


def tops_of(route: str, logprobs: dict[str, Any]) -> list[dict[str, float]]:
    """Return the log probabilities at each position, by token."""
    if route == "completions":
        return list(logprobs["top_logprobs"])
    return [{top["token"]: top["logprob"] for top in entry["top_logprobs"]} for entry in logprobs["content"]]


@pytest.mark.parametrize("route", ROUTES)
class TestVllm:
    def test_named_tokens_replace_the_most_likely(self, server: Served, route: str) -> None:
        a, z = ids_of(server, "az")
        fields = {**switch(route), "logprob_token_ids": [z, a, z], "return_tokens_as_token_ids": True}
        choice = ask(server, route, "ab", **fields)["choices"][0]
        first, second, *_ = tops_of(route, choice["logprobs"])
        assert set(first) == {f"token_id:{a}", f"token_id:{z}"}
        assert len(second) == 3
        assert first[f"token_id:{z}"] == score(a, 0, [z]).given_logprobs[0]
        request = server.engine.requests[-1]
        assert (request.logprobs, request.logprob_token_ids) == (0, (z, a))
        assert request.prompt_logprob_token_ids == ()

    def test_a_stream_has_the_reply_s_entries(self, server: Served, route: str) -> None:
        fields = {**switch(route), "logprob_token_ids": ids_of(server, "xyz")}
        whole = ask(server, route, "abc", **fields)["choices"][0]["logprobs"]
        chunks = [chunk["choices"][0]["logprobs"] for chunk in chunks_of(server, route, "abc", **fields)]
        streamed = [top for logprobs in chunks if logprobs for top in tops_of(route, logprobs)]
        assert streamed == tops_of(route, whole)

    def test_each_choice_has_them(self, server: Served, route: str) -> None:
        fields = {**switch(route, 0), "n": 2, "logprob_token_ids": ids_of(server, "x")}
        choices = ask(server, route, "ab", **fields)["choices"]
        assert [len(tops_of(route, choice["logprobs"])[0]) for choice in choices] == [2, 2]

    def test_prompts_have_the_most_likely(self, server: Served, route: str) -> None:
        body = ask(
            server, route, "ab", **switch(route), prompt_logprobs=3, logprob_token_ids=ids_of(server, "x")
        )
        found = body["prompt_logprobs"] if route == "chat" else body["choices"][0]["prompt_logprobs"]
        assert len(found[1]) == 3

    def test_an_empty_list_changes_nothing(self, server: Served, route: str) -> None:
        choice = ask(server, route, "a", **switch(route), logprob_token_ids=[])["choices"][0]
        assert len(tops_of(route, choice["logprobs"])[0]) == 5

    @pytest.mark.parametrize(
        ("ids", "message"), [([1000], "1000"), ([5] * 129, "at most 128"), ([-1], "0"), ("5", "array")]
    )
    def test_wrong_ones_are_refused(self, server: Served, route: str, ids: Any, message: str) -> None:
        error = error_of(server, route, "a", **switch(route), logprob_token_ids=ids)
        assert error["param"].startswith("logprob_token_ids")
        assert message in error["message"]

    def test_they_need_logprobs(self, server: Served, route: str) -> None:
        error = error_of(server, route, "a", logprob_token_ids=[5])
        assert error["param"] == "logprob_token_ids"
        assert "needs logprobs" in error["message"]

    def test_sglangs_name_is_told_the_other(self, server: Served, route: str) -> None:
        error = error_of(server, route, "a", token_ids_logprob=[5])
        assert "use logprob_token_ids" in error["message"]


def test_a_chat_lists_the_token_first(server: Served) -> None:
    y, x = ids_of(server, "yx")
    entry = ask(server, "chat", "x", logprobs=True, logprob_token_ids=[y, x, y])["choices"][0]["logprobs"][
        "content"
    ][0]
    assert [top["token"] for top in entry["top_logprobs"]] == ["x", "y"]
    assert entry["top_logprobs"][0]["logprob"] == entry["logprob"]


def test_an_echo_has_the_most_likely(server: Served) -> None:
    fields = {"logprobs": 2, "echo": True, "logprob_token_ids": ids_of(server, "wxyz")}
    found = ask(server, "completions", "ab", **fields)["choices"][0]["logprobs"]["top_logprobs"]
    assert [len(each or ()) for each in found] == [0, 2, 5, 5, 5]
    error = error_of(server, "completions", "ab", **fields, max_tokens=0)
    assert error["param"] == "logprob_token_ids"


class TestGenerate:
    @pytest.mark.parametrize("stream", [False, True])
    def test_prompt_and_output_have_them(self, server: Served, stream: bool) -> None:
        a, b, z = ids_of(server, "abz")
        body = {"text": "ab", **SCORED, "token_ids_logprob": [z, a, z], "top_logprobs_num": 1}
        reply = events_of(server, **body)[-1] if stream else generate(server, **body)
        meta, ids = reply["meta_info"], [z, a, z]
        assert meta["input_token_ids_logprobs"] == [None, row(b, ids)]
        assert meta["output_token_ids_logprobs"][:2] == [row(a, ids), row(b, ids)]
        assert len(meta["output_token_ids_logprobs"]) == len(reply["output_ids"]) == 3
        assert [len(each) for each in meta["output_top_logprobs"]] == [1] * 3

    def test_unscored_prompts_have_an_empty_list(self, server: Served) -> None:
        meta = generate(server, text="ab", return_logprob=True, token_ids_logprob=[5])["meta_info"]
        assert meta["input_token_ids_logprobs"] == []
        assert server.engine.requests[-1].prompt_logprob_token_ids == ()

    def test_without_output_they_follow_the_prompt(self, server: Served) -> None:
        """As in SGLang: this is how labels are scored after a prompt."""
        params = {"max_new_tokens": 0}
        body = {"text": "ab", "return_logprob": True, "token_ids_logprob": [5, 9], "sampling_params": params}
        for reply in (generate(server, **body), events_of(server, **body)[-1]):
            assert (reply["output_ids"], reply["meta_info"]["output_token_logprobs"]) == ([], [])
            [a] = ids_of(server, "a")  # the double's next token
            assert reply["meta_info"]["output_token_ids_logprobs"] == [row(a, [5, 9])]

    def test_texts_come_if_asked_for(self, server: Served) -> None:
        body = {"text": "a", "return_logprob": True, "return_text_in_logprobs": True}
        meta = generate(server, **body, token_ids_logprob=ids_of(server, "xy"))["meta_info"]
        assert [text for _, _, text in meta["output_token_ids_logprobs"][0]] == ["x", "y"]

    def test_prompts_share_a_list_or_have_their_own(self, server: Served) -> None:
        def named(ids: Any) -> list[Any]:
            body = {"text": ["a", "b"], "sampling_params": {"n": 2}, **SCORED, "token_ids_logprob": ids}
            found = [
                reply["meta_info"].get("output_token_ids_logprobs") for reply in generate(server, **body)
            ]
            return [each and [id for _, id, _ in each[0]] for each in found]

        assert named([5, 6]) == [[5, 6]] * 4
        assert named([[5], [6, 7]]) == [[5], [5], [6, 7], [6, 7]]
        assert named([[5], []]) == [[5], [5], None, None]
        assert named([]) == named(None) == [None] * 4

    @pytest.mark.parametrize(
        ("text", "ids", "param"),
        [
            ("a", [1000], "token_ids_logprob"),
            ("a", [5] * 129, "token_ids_logprob"),
            ("a", [[5]], "token_ids_logprob"),
            ("a", [5, [6]], "token_ids_logprob"),
            (["a", "b"], [[5]], "token_ids_logprob"),
            (["a", "b"], [[5], [1000]], "token_ids_logprob[1]"),
        ],
    )
    def test_wrong_ones_are_refused(self, server: Served, text: Any, ids: Any, param: str) -> None:
        assert refusal_of(server, text=text, **SCORED, token_ids_logprob=ids)["param"] == param

    def test_too_many_values_of_prompts_are_refused(self, server: Served) -> None:
        """The engine holds all of them until a prompt is computed."""
        body = {"input_ids": [[5] * 500] * 70, "return_logprob": True, "token_ids_logprob": [5] * 128}
        error = refusal_of(server, **body, logprob_start_len=0)
        assert error["param"] == "token_ids_logprob"
        assert "4480000" in error["message"]
        short = {**body, "input_ids": [[5] * 500] * 2, "sampling_params": {"max_new_tokens": 1}}
        assert len(generate(server, **short, logprob_start_len=0)) == 2

    def test_they_need_log_probabilities(self, server: Served) -> None:
        error = refusal_of(server, text="a", token_ids_logprob=[5])
        assert error["param"] == "token_ids_logprob"
        assert "return_logprob" in error["message"]
