"""POST /generate as SGLang's clients use it: what they send, and what they read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ..doubles.echo_engine import EOS, EchoEngine, score
from ..doubles.serving import Served, byte_tokenizer, serving
from .generate import events_of, generate, refusal_of, sampled

SCORED = {"return_logprob": True, "logprob_start_len": 0}
THOUGHT = "<think>\nHmm.\n</think>\n\nYes."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("model"))
    with serving(EchoEngine(), tokenizer, reasoning_parser=None) as served:
        yield served


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with a reasoning parser."""
    with serving(EchoEngine(), byte_tokenizer(tmp_path_factory.mktemp("model"))) as served:
        yield served


def ids_of(server: Served, text: str) -> list[int]:
    return server.tokenizer.encode(text, add_special_tokens=False)


class TestReply:
    def test_it_has_the_ids_of_its_tokens(self, server: Served) -> None:
        reply = generate(server, text="abc")
        assert reply["output_ids"] == [*ids_of(server, "abc"), EOS]
        assert reply["meta_info"]["completion_tokens"] == 4
        assert events_of(server, text="abc")[-1]["output_ids"] == reply["output_ids"]

    def test_the_end_names_what_matched(self, server: Served) -> None:
        def end(**sampling: Any) -> Any:
            return sampled(server, "abcd", **sampling)["meta_info"]["finish_reason"]

        assert end() == {"type": "stop", "matched": EOS}
        assert end(stop="c") == {"type": "stop", "matched": "c"}
        assert end(stop_token_ids=[EOS], ignore_eos=True) == {"type": "stop", "matched": EOS}
        assert end(max_new_tokens=2) == {"type": "length", "length": 2}

    def test_only_its_end_has_a_latency(self, server: Served) -> None:
        *before, last = events_of(server, text="abc")
        assert before
        assert not any("e2e_latency" in event["meta_info"] for event in before)
        assert all(event["meta_info"]["finish_reason"] is None for event in before)
        assert 0 < last["meta_info"]["e2e_latency"] < 60
        assert generate(server, text="abc")["meta_info"]["e2e_latency"] > 0

    def test_cached_tokens_are_counted(self, server: Served) -> None:
        generate(server, text="seen before")
        assert generate(server, text="seen before")["meta_info"]["cached_tokens"] == 10

    def test_reasoning_is_counted_and_stays_in_the_text(self, server: Served, thinker: Served) -> None:
        for logprobs in (False, True):
            reply = generate(thinker, text=THOUGHT, return_logprob=logprobs)
            assert reply["text"] == THOUGHT
            chat = thinker.chat(THOUGHT).json()["usage"]["reasoning_tokens"]
            assert reply["meta_info"]["reasoning_tokens"] == chat > 0
        assert generate(thinker, text="Yes.")["meta_info"]["reasoning_tokens"] == 0
        assert "reasoning_tokens" not in generate(server, text=THOUGHT)["meta_info"]

    def test_thinking_that_the_prompt_opened_counts(self, thinker: Served) -> None:
        reply = generate(thinker, text="ab</think>c<think>")
        assert 0 < reply["meta_info"]["reasoning_tokens"] < len(reply["output_ids"])


class TestScoring:
    @pytest.mark.parametrize("stream", [False, True])
    def test_a_prompt_is_scored_without_new_tokens(self, server: Served, stream: bool) -> None:
        body = {"text": "abc", "sampling_params": {"max_new_tokens": 0}, **SCORED, "top_logprobs_num": 1}
        reply = events_of(server, **body)[-1] if stream else generate(server, **body)
        meta, (a, b, c) = reply["meta_info"], ids_of(server, "abc")
        assert (reply["text"], reply["output_ids"], meta["completion_tokens"]) == ("", [], 0)
        assert meta["finish_reason"] == {"type": "length", "length": 0}
        assert [(id, value) for value, id, _ in meta["input_token_logprobs"]] == [
            (a, None),
            (b, score(b, 0).logprob),
            (c, score(c, 0).logprob),
        ]
        assert meta["output_token_logprobs"] == meta["output_top_logprobs"] == []
        assert meta["output_token_logprobs_length"] == 0

    def test_without_scores_the_text_is_empty(self, server: Served) -> None:
        reply = sampled(server, "abc", max_new_tokens=0)
        assert (reply["text"], reply["output_ids"]) == ("", [])

    def test_minimum_of_an_empty_text_is_refused(self, server: Served) -> None:
        error = refusal_of(server, text="a", sampling_params={"max_new_tokens": 0, "min_new_tokens": 1})
        assert error["param"] == "min_new_tokens"

    @pytest.mark.parametrize("start", [{}, {"logprob_start_len": -1}, {"logprob_start_len": None}])
    def test_unasked_the_prompts_list_is_empty(self, server: Served, start: dict[str, Any]) -> None:
        meta = generate(server, text="ab", return_logprob=True, top_logprobs_num=1, **start)["meta_info"]
        assert meta["input_token_logprobs"] == meta["input_top_logprobs"] == []
        assert meta["output_token_logprobs_length"] == len(meta["output_token_logprobs"]) == 3

    def test_texts_of_tokens_come_if_asked_for(self, server: Served) -> None:
        meta = generate(server, text="ab", **SCORED, return_text_in_logprobs=True)["meta_info"]
        assert [text for _, _, text in meta["input_token_logprobs"]] == ["a", "b"]

    def test_top_logprobs_alone_are_refused(self, server: Served) -> None:
        """SGLang answers without them, as if they had not been asked for."""
        assert refusal_of(server, text="a", top_logprobs_num=2)["param"] == "top_logprobs_num"
        assert generate(server, text="a", top_logprobs_num=0)["text"] == "a"

    def test_their_form_alone_is_reported_as_ignored(self, server: Served) -> None:
        fields = {"logprob_start_len": 0, "return_text_in_logprobs": True}
        reply = server.post("/generate", {"text": "a", **fields})
        assert reply.headers["llmfw-ignored-params"] == "logprob_start_len, return_text_in_logprobs"
        neutral = {"logprob_start_len": -1, "return_text_in_logprobs": False, "return_logprob": False}
        assert "llmfw-ignored-params" not in server.post("/generate", {"text": "a", **neutral}).headers


class TestChoices:
    def test_several_come_as_a_list(self, server: Served) -> None:
        replies = generate(server, text="ab", sampling_params={"n": 3, "sampling_seed": 5})
        assert [reply["text"] for reply in replies] == ["ab"] * 3
        assert len({reply["meta_info"]["id"] for reply in replies}) == 3
        assert len({request.sampling.seed for request in server.engine.requests[-3:]}) == 3

    def test_each_prompts_choices_stand_together(self, server: Served) -> None:
        replies = generate(server, input_ids=[[65], [66]], sampling_params={"n": 2})
        assert [reply["output_ids"][0] for reply in replies] == [65, 65, 66, 66]

    @pytest.mark.parametrize("stream", [False, True])
    def test_all_have_the_prompts_log_probabilities(self, server: Served, stream: bool) -> None:
        body = {"text": ["abc", "d"], "sampling_params": {"n": 2}, **SCORED}
        replies = generate(server, **body)
        if stream:
            events = events_of(server, **body)
            replies = [{event["index"]: event for event in events}[i] for i in range(4)]
            assert all(event["meta_info"]["input_token_logprobs"] for event in events)
        lists = [reply["meta_info"]["input_token_logprobs"] for reply in replies]
        assert [len(each) for each in lists] == [3, 3, 1, 1]
        assert lists[0] == lists[1]

    def test_too_many_are_refused(self, server: Served) -> None:
        params = {"n": 128}
        assert refusal_of(server, text=["a"] * 33, sampling_params=params)["param"] == "n"
        assert refusal_of(server, text="a", sampling_params={"n": 0})["param"] == "sampling_params.n"
        assert refusal_of(server, text="a", n=2)["param"] == "n"


class TestLists:
    def test_each_prompt_has_sampling_of_its_own(self, server: Served) -> None:
        params = [{"max_new_tokens": 1}, {"max_new_tokens": 0}, {"temperature": 0, "regex": "a+"}]
        replies = generate(server, text=["abc", "def", "ghi"], sampling_params=params)
        assert [reply["text"] for reply in replies] == ["a", "", "ghi"]
        one, _, three = server.engine.requests[-3:]
        assert (one.grammar, three.grammar.source, three.sampling.temperature) == (None, "a+", 0)

    @pytest.mark.parametrize(
        ("body", "param"),
        [
            ({"text": ["a"], "sampling_params": []}, "sampling_params"),
            ({"text": ["a"], "sampling_params": [{}, {}]}, "sampling_params"),
            ({"text": "a", "sampling_params": [{}]}, "sampling_params"),
            ({"text": ["a", "b"], "sampling_params": [{}, {"top_p": 2}]}, "sampling_params[1].top_p"),
            ({"text": ["a", "b"], "sampling_params": [{}, {"n": 2}]}, "sampling_params[1].n"),
            ({"text": ["a", "b"], "sampling_params": [{}, {"xtc_probability": 1}]}, "xtc"),
            ({"text": ["a"] * 65, "sampling_params": [{"regex": f"a{i}"} for i in range(65)]}, "[64]"),
        ],
    )
    def test_a_list_that_does_not_fit_is_refused(
        self, server: Served, body: dict[str, Any], param: str
    ) -> None:
        assert param in refusal_of(server, **body)["param"]

    def test_ignored_fields_name_their_prompt(self, server: Served) -> None:
        reply = server.post(
            "/generate", {"text": ["a", "b"], "sampling_params": [{}, {"stream_interval": 4}]}
        )
        assert reply.headers["llmfw-ignored-params"] == "sampling_params[1].stream_interval"


class TestIds:
    @pytest.mark.parametrize(
        ("rid", "text", "n", "found"),
        [
            ("r", "a", 1, ["r"]),
            ("r", "a", 2, ["r_0", "r_1"]),
            ("r", ["a", "b"], 1, ["r_0", "r_1"]),
            (["x", "y"], ["a", "b"], 1, ["x", "y"]),
            (["x", "y"], ["a", "b"], 2, ["x_0", "x_1", "y_0", "y_1"]),
        ],
    )
    def test_replies_have_those_of_the_client(
        self, server: Served, rid: Any, text: Any, n: int, found: list[str]
    ) -> None:
        body = {"text": text, "rid": rid, "sampling_params": {"n": n}}
        replies = generate(server, **body)
        shown = replies if isinstance(replies, list) else [replies]
        assert [reply["meta_info"]["id"] for reply in shown] == found
        assert {event["meta_info"]["id"] for event in events_of(server, **body)} == set(found)

    @pytest.mark.parametrize("rid", [["x"], ["x", "x"], ["x", ""], "", "r" * 257])
    def test_wrong_ones_are_refused(self, server: Served, rid: Any) -> None:
        assert refusal_of(server, text=["a", "b"], rid=rid)["param"].startswith("rid")
        assert refusal_of(server, text="a", rid=["x"])["param"] == "rid"

    def test_two_requests_may_share_one(self, server: Served) -> None:
        """They are names for the client; the engine has its own."""
        generate(server, text="ab", rid="same")
        generate(server, text="ab", rid="same")
        assert len({request.id for request in server.engine.requests[-2:]}) == 2
