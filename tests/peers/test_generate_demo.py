"""POST /generate with the demo model and the real engine: scores and ends are those of the other routes."""

from __future__ import annotations

from typing import Any

import pytest

from ..doubles.serving import Served
from .generate import events_of, generate

PROMPT = "What is 12 plus 30?"


def whole_list(reply: Any) -> list[list[Any]]:
    return [
        [round(value, 4) if value else None, id]
        for value, id, _ in reply["meta_info"]["input_token_logprobs"]
    ]


def test_scores_are_those_of_completions(demo_server: Served) -> None:
    body = {
        "text": PROMPT,
        "return_logprob": True,
        "logprob_start_len": 0,
        "sampling_params": {"max_new_tokens": 0},
    }
    found = whole_list(generate(demo_server, **body))
    fields = {"prompt": PROMPT, "echo": True, "logprobs": 0, "max_tokens": 0}
    scored = demo_server.post("/v1/completions", fields).json()["choices"][0]["logprobs"]["token_logprobs"]
    assert [value for value, _ in found] == [None if each is None else round(each, 4) for each in scored]
    assert len(found) > 3


def test_named_tokens_score_as_the_most_likely(demo_server: Served) -> None:
    body = {"text": PROMPT, "return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 3}
    params = {"max_new_tokens": 3, "temperature": 0}
    tops = generate(demo_server, **body, sampling_params=params)["meta_info"]["output_top_logprobs"]
    ids = [id for _, id, _ in tops[0]]
    found = generate(demo_server, **body, token_ids_logprob=ids, sampling_params=params)["meta_info"]
    for one, other in zip(found["output_token_ids_logprobs"][0], tops[0], strict=True):
        assert one == [pytest.approx(other[0], abs=1e-3), *other[1:]]
    scored = generate(demo_server, **body, token_ids_logprob=ids, sampling_params={"max_new_tokens": 0})[
        "meta_info"
    ]
    assert [id for _, id, _ in scored["output_token_ids_logprobs"][0]] == ids
    assert len(scored["input_token_ids_logprobs"]) == len(scored["input_token_logprobs"])


@pytest.mark.parametrize("stream", [False, True])
def test_choices_share_the_prompts_scores(demo_server: Served, stream: bool) -> None:
    params = {"max_new_tokens": 4, "n": 3, "sampling_seed": 5, "ignore_eos": True}
    body = {"text": PROMPT, "return_logprob": True, "logprob_start_len": 2, "sampling_params": params}
    replies = generate(demo_server, **body)
    if stream:
        last = {event["index"]: event for event in events_of(demo_server, **body)}
        assert [last[i]["output_ids"] for i in range(3)] == [reply["output_ids"] for reply in replies]
        replies = [last[i] for i in range(3)]
    assert [len(reply["output_ids"]) for reply in replies] == [4] * 3
    lists = [whole_list(reply) for reply in replies]
    assert lists[0] == lists[1] == lists[2]
    assert len(lists[0]) > 2


def test_a_stop_token_is_what_matched(demo_server: Served) -> None:
    params: dict[str, Any] = {"max_new_tokens": 8, "temperature": 0, "ignore_eos": True}
    second = generate(demo_server, text=PROMPT, sampling_params=params)["output_ids"][1]
    reply = generate(demo_server, text=PROMPT, sampling_params={**params, "stop_token_ids": [second]})
    assert reply["meta_info"]["finish_reason"] == {"type": "stop", "matched": second}
    assert reply["output_ids"][-1] == second


def test_each_prompt_is_held_to_its_own_form(demo_server: Served) -> None:
    forms = [{"regex": "[0-9]{3}"}, {"regex": "[a-c]{2}"}]
    body = {"text": [PROMPT, PROMPT], "sampling_params": [{**form, "max_new_tokens": 9} for form in forms]}
    digits, letters = (reply["text"] for reply in generate(demo_server, **body))
    assert (len(digits), digits.isdigit()) == (3, True)
    assert len(letters) == 2
    assert set(letters) <= set("abc")
