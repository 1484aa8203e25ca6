"""SGLang's native generation: log probabilities and lists of prompts."""

from __future__ import annotations

import json
from typing import Any

from ..doubles.echo_engine import EOS, score
from ..doubles.serving import Served


def generate(server: Served, **body: Any) -> Any:
    reply = server.post("/generate", body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def streamed(server: Served, **body: Any) -> list[dict[str, Any]]:
    frames = server.post("/generate", {**body, "stream": True}).text.split("\n\n")[:-2]
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


def test_logprobs_are_absent_by_default(server: Served) -> None:
    assert not [key for key in generate(server, text="Hi")["meta_info"] if "logprob" in key]


def test_each_new_token_has_value_and_id(server: Served) -> None:
    """Its text is included on request."""
    meta = generate(server, input_ids=[65, 66], return_logprob=True)["meta_info"]
    assert meta["output_token_logprobs"] == [[score(id, 0).logprob, id, None] for id in (65, 66, EOS)]
    assert "output_top_logprobs" not in meta
    meta = generate(server, text="ab", return_logprob=True, return_text_in_logprobs=True)["meta_info"]
    assert [text for _, _, text in meta["output_token_logprobs"][:2]] == ["a", "b"]


def test_each_token_has_the_most_likely_ones(server: Served) -> None:
    meta = generate(server, input_ids=[65], return_logprob=True, top_logprobs_num=2)["meta_info"]
    values = score(65, 2).top_logprobs
    assert meta["output_top_logprobs"][0] == [[values[0], 65, None], [values[1], 66, None]]


def test_prompt_logprobs_start_at_the_given_position(server: Served) -> None:
    fields = {"input_ids": [65, 66, 67, 68], "return_logprob": True, "top_logprobs_num": 1}
    meta = generate(server, **fields, logprob_start_len=1)["meta_info"]
    assert meta["input_token_logprobs"] == [[None, 66, None]] + [
        [score(id, 0).logprob, id, None] for id in (67, 68)
    ]
    assert [top and top[0][1] for top in meta["input_top_logprobs"]] == [None, 67, 68]
    assert generate(server, **fields, logprob_start_len=4)["meta_info"]["input_token_logprobs"] == []


def test_the_engine_reports_what_is_asked_for(server: Served) -> None:
    for start, first in ((0, 1), (1, 2), (2, 3), (3, 3), (4, 3)):
        fields = {
            "input_ids": [[65, 66, 67, 68], [65] * 9],
            "return_logprob": True,
            "logprob_start_len": start,
        }
        found = [each["meta_info"]["input_token_logprobs"] for each in generate(server, **fields)]
        assert [len(each) for each in found] == [4 - start, 9 - start]
        values = [value for each in found for value, _, _ in each[1:]]
        assert None not in values
        starts = [request.prompt_logprobs_start for request in server.engine.requests[-2:]]
        assert starts == [first, start + 1]


def test_a_place_beyond_the_prompt_is_refused(server: Served) -> None:
    body = {"input_ids": [[65, 66], [67]], "return_logprob": True, "logprob_start_len": 2}
    error = server.post("/generate", body).json()["error"]
    assert error["param"] == "logprob_start_len"
    assert "2, and a prompt has 1 tokens" in error["message"]


def test_lists_of_ids_need_a_list_of_prompts(server: Served) -> None:
    body = {"input_ids": [65, 66], "return_logprob": True, "token_ids_logprob": [[5]]}
    error = server.post("/generate", body).json()["error"]
    assert error["param"] == "token_ids_logprob"
    assert "send a list of token ids, such as [5]" in error["message"]


def test_the_prompt_is_not_scored_by_default(server: Served) -> None:
    meta = generate(server, text="ab", return_logprob=True, logprob_start_len=-1)["meta_info"]
    assert meta["input_token_logprobs"] == []
    assert server.engine.requests[-1].prompt_logprobs is None


def test_a_list_of_prompts_gives_a_list(server: Served) -> None:
    replies = generate(server, text=["ab", "c"], return_logprob=True)
    assert [reply["text"] for reply in replies] == ["ab", "c"]
    assert [len(reply["meta_info"]["output_token_logprobs"]) for reply in replies] == [3, 2]
    assert len({reply["meta_info"]["id"] for reply in replies}) == 2
    assert len(generate(server, input_ids=[[65], [66], [67]])) == 3
    assert isinstance(generate(server, text=["ab"]), list)


def test_a_stream_s_last_event_is_the_reply(server: Served) -> None:
    fields = {"text": ["ab", "c"], "return_logprob": True, "logprob_start_len": 0}
    last = {event["index"]: event for event in streamed(server, **fields)}
    for index, whole in enumerate(generate(server, **fields)):
        assert last[index]["text"] == whole["text"]
        for key in ("input_token_logprobs", "output_token_logprobs", "finish_reason"):
            assert last[index]["meta_info"][key] == whole["meta_info"][key]
