"""Log probabilities of completions, in the form of OpenAI's older API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from openai.types import Completion

from llmfw.core.base.request import Request, TokenEvent

from ..doubles.echo_engine import EOS, EchoEngine, score
from ..doubles.serving import Served, byte_tokenizer, serving
from .test_completions import chunks_of, complete


def logprobs_of(server: Served, **fields: Any) -> list[dict[str, Any]]:
    body = complete(server, **fields)
    if not fields.get("echo"):  # the SDK's type does not know of the null that OpenAI sends for a first token
        Completion.model_validate(body, strict=True)
    return [choice["logprobs"] for choice in body["choices"]]


def streamed(server: Served, **fields: Any) -> dict[int, dict[str, Any]]:
    """Return text and logprobs of each choice of a stream, put together."""
    found: dict[int, dict[str, Any]] = {}
    for chunk in chunks_of(server, **fields):
        Completion.model_validate({**chunk, "choices": []}, strict=True)
        [choice] = chunk["choices"]
        whole = found.setdefault(choice["index"], {"text": ""})
        whole["text"] += choice["text"]
        for key, values in (choice["logprobs"] or {}).items():
            whole[key] = whole.get(key, []) + values
    return found


def test_logprobs_are_absent_by_default(server: Served) -> None:
    assert logprobs_of(server, prompt="Hi") == logprobs_of(server, prompt="Hi", logprobs=False) == [None]


def test_each_new_token_has_a_logprob_entry(server: Served) -> None:
    """So has the token that ends the text."""
    [found] = logprobs_of(server, prompt="ab", logprobs=2)
    a, b = (server.engine.requests[-1].prompt[i] for i in range(2))
    assert found["tokens"][:2] == ["a", "b"]
    assert found["token_logprobs"] == [score(id, 0).logprob for id in (a, b, EOS)]
    assert found["top_logprobs"][0] == {"a": score(a, 0).logprob, "b": score(a, 2).top_logprobs[1]}


def test_offsets_count_from_the_prompt_s_start(server: Served) -> None:
    [without] = logprobs_of(server, prompt="é🎉", logprobs=0)
    [with_echo] = logprobs_of(server, prompt="é🎉", logprobs=0, echo=True)
    assert without["text_offset"] == [2, 2, 3, 3, 3, 3, 4]
    assert with_echo["text_offset"] == [0, 0, 1, 1, 1, 1] + without["text_offset"]


@pytest.mark.parametrize("as_token_ids", [False, True])
def test_with_echo_prompt_logprobs_come_first(server: Served, as_token_ids: bool) -> None:
    complete(server, prompt="abc")
    token_ids = server.engine.requests[-1].prompt
    [found] = logprobs_of(
        server, prompt=token_ids if as_token_ids else "abc", logprobs=1, echo=True, max_tokens=2
    )
    assert found["tokens"] == ["a", "b", "c", "a", "b"]
    assert found["token_logprobs"][0] is found["top_logprobs"][0] is None
    ids = [*token_ids[1:], *token_ids[:2]]
    assert found["token_logprobs"][1:] == [score(id, 0).logprob for id in ids]


def test_a_partial_character_is_named_by_bytes(server: Served) -> None:
    [found] = logprobs_of(server, prompt="é", logprobs=0, max_tokens=1)
    assert found["tokens"] == ["bytes:\\xc3"]


def test_tokens_cut_by_stop_strings_have_no_entries(server: Served) -> None:
    [found] = logprobs_of(server, prompt="ab stop c", logprobs=0, stop=["stop"])
    assert "".join(found["tokens"]) == "ab "


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "a🎉b", "max_tokens": 3},
        {"prompt": "ab stop c", "stop": ["stop"]},
        {"prompt": ["ab", "c"], "n": 3, "echo": True},
        {"prompt": "x", "echo": True},
        {"prompt": "ab", "echo": True, "max_tokens": 0, "n": 2},
    ],
)
def test_joined_chunks_equal_the_whole_reply(server: Served, fields: dict[str, Any]) -> None:
    whole = complete(server, logprobs=2, **fields)["choices"]
    parts = streamed(server, logprobs=2, **fields)
    assert [parts[i] for i in range(len(parts))] == [{"text": c["text"], **c["logprobs"]} for c in whole]


def test_only_the_first_choice_scores_the_prompt(server: Served) -> None:
    before = len(server.engine.requests)
    one, two = logprobs_of(server, prompt="ab", n=2, logprobs=1, echo=True)
    assert one == two
    asked = [request.prompt_logprobs for request in server.engine.requests[before:]]
    assert sorted(asked, key=str) == [1, None]


@pytest.mark.parametrize("as_token_ids", [False, True])
def test_lm_eval_s_scoring_requests_work(server: Served, as_token_ids: bool) -> None:
    complete(server, prompt="context answer")
    [*token_ids] = server.engine.requests[-1].prompt
    prompt: Any = [token_ids, token_ids[:9]] if as_token_ids else ["context answer", "context a"]
    fields = {"max_tokens": 1, "echo": True, "logprobs": 1, "seed": 1234, "temperature": 0}
    for found, length in zip(logprobs_of(server, prompt=prompt, **fields), (14, 9), strict=True):
        # The harness leaves out the context's tokens before the answer's, and one new token after them.
        answer = found["token_logprobs"][8:-1]
        assert answer == [score(id, 0).logprob for id in token_ids[8:length]]
        tops = found["top_logprobs"][8:-1]
        assert all(own == max(top.values()) for own, top in zip(answer, tops, strict=True))


def test_echo_without_new_tokens_scores_the_prompt(server: Served) -> None:
    body = complete(server, prompt=["abc", "de"], echo=True, logprobs=0, max_tokens=0)
    assert [choice["text"] for choice in body["choices"]] == ["abc", "de"]
    assert [choice["finish_reason"] for choice in body["choices"]] == ["length", "length"]
    assert [len(choice["logprobs"]["tokens"]) for choice in body["choices"]] == [3, 2]
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (5, 0)
    assert body["usage"]["total_tokens"] == 5


class LateFirst(EchoEngine):
    """The first choice of each request waits three steps."""

    def __init__(self) -> None:
        super().__init__()
        self._waited: dict[str, int] = {}

    def _next(self, request: Request, done: int) -> list[TokenEvent]:
        if request.id.endswith("-0") and self._waited.setdefault(request.id, 0) < 3:
            self._waited[request.id] += 1
            return []
        return super()._next(request, done)


def test_early_tokens_wait_for_prompt_logprobs(tmp_path: Path) -> None:
    with serving(LateFirst(), byte_tokenizer(tmp_path)) as served:
        parts = streamed(served, prompt="abcd", n=2, echo=True, logprobs=0, max_tokens=2)
    assert parts[0] == parts[1]
    assert "".join(parts[1]["tokens"]) == parts[1]["text"] == "abcdab"
    assert parts[1]["text_offset"] == [0, 1, 2, 3, 4, 5]
