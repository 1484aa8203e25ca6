"""Completions as the OpenAI SDK sees them."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai.types import Completion

from ..doubles.serving import SERVED_NAME, Served


def complete(server: Served, **fields: Any) -> dict[str, Any]:
    reply = server.post("/v1/completions", fields)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def chunks_of(server: Served, **fields: Any) -> list[dict[str, Any]]:
    reply = server.post("/v1/completions", {**fields, "stream": True})
    *frames, last = reply.text.removesuffix("\n\n").split("\n\n")
    assert last == "data: [DONE]"
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


def test_a_reply_matches_the_sdk_s_type(server: Served) -> None:
    body = complete(server, prompt="Hello")
    reply = Completion.model_validate(body, strict=True)
    assert reply.choices[0].text == "Hello"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.id.startswith("cmpl-")
    assert body["choices"][0].keys() == {
        "index",
        "text",
        "logprobs",
        "finish_reason",
        "matched_stop",
        "stop_reason",
    }


def test_max_tokens_is_16_by_default(server: Served) -> None:
    reply = complete(server, prompt="A prompt of more than sixteen bytes")
    assert reply["choices"][0]["text"] == "A prompt of more"
    assert reply["choices"][0]["finish_reason"] == "length"


def test_choices_are_numbered_prompt_by_prompt(sdk: openai.OpenAI) -> None:
    reply = sdk.completions.create(model=SERVED_NAME, prompt=["one", "two"], n=2)
    assert [(c.index, c.text) for c in reply.choices] == [(0, "one"), (1, "one"), (2, "two"), (3, "two")]
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (6, 16)


def test_a_prompt_may_be_token_ids(server: Served) -> None:
    complete(server, prompt="abc")
    token_ids = server.engine.requests[-1].prompt
    assert complete(server, prompt=token_ids)["choices"][0]["text"] == "abc"
    several = complete(server, prompt=[token_ids, token_ids[:2]])
    assert [choice["text"] for choice in several["choices"]] == ["abc", "ab"]


@pytest.mark.parametrize("as_token_ids", [False, True])
def test_echo_puts_the_prompt_before_the_text(server: Served, as_token_ids: bool) -> None:
    complete(server, prompt="Echo, ")
    prompt = server.engine.requests[-1].prompt if as_token_ids else "Echo, "
    assert complete(server, prompt=prompt, echo=True)["choices"][0]["text"] == "Echo, Echo, "
    assert (
        "".join(c["choices"][0]["text"] for c in chunks_of(server, prompt=prompt, echo=True))
        == "Echo, Echo, "
    )


def test_every_chunk_matches_the_sdk_s_type(server: Served) -> None:
    """All name the same reply."""
    chunks = chunks_of(server, prompt=["ab", "cd"], stream_options={"include_usage": True})
    for chunk in chunks[:-1]:
        assert chunk["usage"] is None
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["total_tokens"] == 10
    for key in ("id", "created", "model", "system_fingerprint", "object"):
        assert len({chunk[key] for chunk in chunks}) == 1


def test_streamed_choices_have_text_and_one_finish_reason(sdk: openai.OpenAI) -> None:
    texts, finished = ["", ""], []
    for chunk in sdk.completions.create(model=SERVED_NAME, prompt=["Grüße", "🎉"], stream=True):
        [choice] = chunk.choices
        texts[choice.index] += choice.text
        finished += [choice.index] if choice.finish_reason else []
    assert texts == ["Grüße", "🎉"]
    assert sorted(finished) == [0, 1]


def test_a_character_that_the_limit_cuts_is_marked(server: Served) -> None:
    assert complete(server, prompt="a🎉b", max_tokens=3)["choices"][0]["text"] == "a\ufffd"


def test_the_seed_reaches_the_engine(server: Served) -> None:
    complete(server, prompt="Hi", seed=123)
    assert server.engine.requests[-1].sampling.seed == 123


def test_ignore_eos_removes_the_end_tokens(server: Served) -> None:
    complete(server, prompt="Hi")
    assert server.engine.requests[-1].eos_token_ids == (256,)
    complete(server, prompt="Hi", ignore_eos=True)
    assert server.engine.requests[-1].eos_token_ids == ()


def test_every_sampling_field_reaches_the_engine(server: Served) -> None:
    fields = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.1,
        "presence_penalty": 0.3,
        "frequency_penalty": 0.4,
        "repetition_penalty": 1.1,
        "min_tokens": 2,
        "max_tokens": 9,
        "seed": 5,
    }
    complete(
        server, prompt="Hi", **fields, logit_bias={"65": -100}, stop=["x"], stop_token_ids=[9], priority=3
    )
    request = server.engine.requests[-1]
    assert {name: getattr(request.sampling, name) for name in fields} == fields
    assert request.sampling.logit_bias == {65: -100.0}
    assert request.sampling.stop == ("x",)
    assert request.sampling.stop_token_ids == (9,)
    assert request.priority == 3
