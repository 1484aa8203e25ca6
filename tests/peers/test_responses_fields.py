"""Fields of chats on /v1/responses: each does there what it does in chats, or is refused by its name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from llmfw.api.schemas.chat import ChatRequest
from llmfw.api.schemas.responses import ResponsesRequest

from ..doubles.echo_engine import EOS, EchoEngine
from ..doubles.serving import Served, byte_tokenizer, serving

IN_ENGINE: dict[str, tuple[Any, str, Any]] = {
    "frequency_penalty": (1.5, "frequency_penalty", 1.5),
    "ignore_eos": (True, "ignore_eos", True),
    "logit_bias": ({"7": 1.5}, "logit_bias", {7: 1.5}),
    "allowed_token_ids": ([5, 6], "allowed_token_ids", (5, 6)),
    "min_p": (0.25, "min_p", 0.25),
    "min_tokens": (2, "min_tokens", 2),
    "presence_penalty": (1.5, "presence_penalty", 1.5),
    "repeat_penalty": (1.5, "repetition_penalty", 1.5),
    "repetition_penalty": (1.5, "repetition_penalty", 1.5),
    "seed": (5, "seed", 5),
    "stop_token_ids": ([5], "stop_token_ids", (5,)),
    "temperature": (0.5, "temperature", 0.5),
    "top_k": (3, "top_k", 3),
    "top_p": (0.5, "top_p", 0.5),
}
"""Field → the value to send, the sampling parameter that it sets, and that parameter's value."""

IN_TEXT: dict[str, tuple[dict[str, Any], str]] = {
    "stop": ({"stop": "c"}, "ab"),
    "stop_regex": ({"stop_regex": "[cd]"}, "ab"),
    "no_stop_trim": ({"stop_regex": "[cd]", "no_stop_trim": True}, "abc"),
    "include_stop_str_in_output": ({"stop": "c", "include_stop_str_in_output": True}, "abc"),
}
"""Field → fields to send with the input "abcd", and the text of the answer."""

REFUSED: dict[str, Any] = {
    "add_generation_prompt": False,
    "choice": ["a"],
    "continue_final_message": True,
    "echo": True,
    "ebnf": "x",
    "grammar": "x",
    "guided_choice": ["a"],
    "guided_grammar": "x",
    "guided_json": {},
    "guided_regex": "x",
    "include_reasoning": False,
    "json_schema": {},
    "logprob_token_ids": [5],
    "logprobs": True,
    "max_completion_tokens": 5,
    "max_tokens": 5,
    "messages": [{"role": "user", "content": "a"}],
    "n": 2,
    "prompt_logprobs": 1,
    "reasoning_effort": "low",
    "regex": "x",
    "response_format": {"type": "json_object"},
    "return_token_ids": True,
    "return_tokens_as_token_ids": True,
    "separate_reasoning": False,
    "stream_reasoning": False,
    "structural_tag": {},
    "structured_outputs": {"regex": "x"},
    "truncate_prompt_tokens": 5,
    "use_beam_search": True,
}
OTHERS = {
    *("model", "stream", "stream_options", "tools", "tool_choice", "parallel_tool_calls", "top_logprobs"),
    *("user", "safety_identifier", "timeout", "priority", "cache_salt", "chat_template_kwargs"),
    *("bad_words", "skip_special_tokens", "constrained_logprobs", "enable_thinking"),
    *("thinking_budget", "thinking_token_budget"),
}
"""Fields of chats whose effect is tested below, or in the tests of responses."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("model"), ("<think>", "</think>"))
    with serving(EchoEngine(), tokenizer) as served:
        yield served


def answer(server: Served, text: str = "abcd", **fields: Any) -> Any:
    reply = server.post("/v1/responses", {"input": text, **fields})
    assert reply.status_code == 200, reply.text
    assert "llmfw-ignored-params" not in reply.headers
    return reply.json()


def text_of(response: Any) -> str:
    return str(response["output"][-1]["content"][0]["text"])


def test_no_field_of_chats_is_missing_here() -> None:
    known = {*IN_ENGINE, *IN_TEXT, *REFUSED, *OTHERS}
    assert set(ChatRequest.__struct_fields__) - known == set()
    assert not set(REFUSED) & set(ResponsesRequest.__struct_fields__)


@pytest.mark.parametrize("field", IN_ENGINE)
def test_a_parameter_reaches_the_engine(server: Served, field: str) -> None:
    value, name, found = IN_ENGINE[field]
    answer(server, **{field: value})
    assert getattr(server.engine.requests[-1].sampling, name) == found


@pytest.mark.parametrize("field", IN_TEXT)
def test_an_end_of_the_text_holds(server: Served, field: str) -> None:
    fields, text = IN_TEXT[field]
    assert text_of(answer(server, **fields)) == text


@pytest.mark.parametrize("field", REFUSED)
def test_what_is_not_there_is_refused(server: Served, field: str) -> None:
    used = {"top_logprobs": 1}
    reply = server.post("/v1/responses", {"input": "a", **used, field: REFUSED[field]})
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert (error["param"], error["code"]) == (field, "unsupported_parameter")


def test_bad_words_reach_the_engine(server: Served) -> None:
    answer(server, bad_words=["c"])
    [c] = server.tokenizer.encode("c", add_special_tokens=False)
    assert server.engine.requests[-1].sampling.bad_words[0] == (c,)


def test_special_tokens_are_shown_if_asked_for(server: Served) -> None:
    fields = {"no_stop_trim": True, "skip_special_tokens": False}
    shown = server.tokenizer.decode([EOS], skip_special_tokens=False)
    assert text_of(answer(server, **fields)) == "abcd" + shown


def test_constrained_log_probabilities_reach_the_engine(server: Served) -> None:
    answer(server, top_logprobs=1, constrained_logprobs=True)
    assert server.engine.requests[-1].constrained_logprobs


@pytest.mark.parametrize("name", ["thinking_budget", "thinking_token_budget"])
def test_a_thinking_budget_reaches_the_engine(server: Served, name: str) -> None:
    answer(server, **{name: 7})
    assert server.engine.requests[-1].thinking.budget == 7


def test_thinking_is_switched_as_in_chats(server: Served) -> None:
    answer(server, enable_thinking=True)
    [opening] = server.tokenizer.encode("<think>", add_special_tokens=False)
    assert server.engine.requests[-1].prompt[-1] == opening
    counted = [
        server.post("/v1/responses/input_tokens", {"input": "a", "enable_thinking": on}).json()[
            "input_tokens"
        ]
        for on in (False, True)
    ]
    assert counted == [1, 2]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stop_regex": "a*"}, "stop_regex"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"bad_words": [" "]}, "bad_words[0]"),
        ({"repeat_penalty": 1.5, "repetition_penalty": 2}, "repeat_penalty"),
        ({"thinking_budget": 1, "thinking_token_budget": 2}, "thinking_token_budget"),
    ],
)
def test_a_wrong_value_names_its_field(server: Served, fields: dict[str, Any], param: str) -> None:
    reply = server.post("/v1/responses", {"input": "a", **fields})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
