"""Tokens become text, reasoning and calls, whatever way they come."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.api.text.text_stream import TextStream
from llmfw.core.base.request import FinishReason, TokenEvent
from llmfw.core.interfaces.parsers import ContentDelta, ReasoningDelta, ToolCallDelta
from llmfw.core.interfaces.tokenizer import Tokenizer
from llmfw.plugins.parsers_families.hermes import HermesToolParser
from llmfw.plugins.parsers_families.qwen3_reasoning import Qwen3ReasoningParser

from ...doubles.serving import byte_tokenizer

TOOL = {"type": "function", "function": {"name": "f"}}
CALL = '<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>'


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return byte_tokenizer(tmp_path_factory.mktemp("model"))


def run(
    stream: TextStream, token_lists: list[list[int]], reason: FinishReason = FinishReason.LENGTH
) -> list[str]:
    """Feed tokens until the end; return content, reasoning and calls."""
    found = ["", "", ""]
    for i, token_ids in enumerate(token_lists):
        event = TokenEvent("id", token_ids, reason if i == len(token_lists) - 1 else None)
        for delta in stream.feed(event):
            if isinstance(delta, ToolCallDelta):
                found[2] += (f"{delta.name}:" if delta.name else "") + delta.arguments
            else:
                found[isinstance(delta, ReasoningDelta)] += delta.text
        if stream.finish_reason is not None:
            break
    return found


pieces = st.sampled_from(
    ["<think>", "</think>", "\n", " ", "a", "é", "🎉", CALL, "<tool_call>", "</tool_call>", "stop"]
)


@given(st.lists(pieces, max_size=12).map("".join), st.lists(st.integers(0, 400)))
def test_chunking_tokens_gives_the_same_answer(tokenizer: Tokenizer, text: str, places: list[int]) -> None:
    token_ids = tokenizer.encode(text)
    edges = [0, *sorted(place % (len(token_ids) + 1) for place in places), len(token_ids)]
    cut = [token_ids[a:b] for a, b in itertools.pairwise(edges)]

    def stream() -> TextStream:
        reasoning, tools = Qwen3ReasoningParser(), HermesToolParser([TOOL])
        return TextStream(tokenizer.detokenizer(), stop=["stop"], reasoning=reasoning, tools=tools)

    assert run(stream(), cut) == run(stream(), [[token] for token in token_ids] + [[]])


def test_the_end_token_is_not_in_the_text(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer.detokenizer())
    token_ids = tokenizer.encode("ab")
    assert run(stream, [[token] for token in token_ids], FinishReason.STOP)[0] == "a"
    assert stream.token_ids == token_ids
    assert stream.stopped_by == token_ids[-1]


def test_a_stop_string_counts_only_after_min_tokens(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer.detokenizer(), stop=["x"], min_tokens=4)
    assert run(stream, [[token] for token in tokenizer.encode("axbcdxe")])[0] == "axbcd"


def test_held_back_text_is_flushed_at_the_end(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer.detokenizer(), stop=["end of it"])
    assert run(stream, [[token] for token in tokenizer.encode("the end of")])[0] == "the end of"
    assert stream.finish_reason == "length"


def test_a_truncated_call_is_no_tool_call(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer.detokenizer(), tools=HermesToolParser([TOOL]))
    content, _, calls = run(stream, [[token] for token in tokenizer.encode(CALL[:30])])
    assert (content, calls, stream.finish_reason) == (CALL[:30], "", "length")


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_a_text_is_what_decode_returns(tokenizer: Tokenizer, cut: int) -> None:
    token_ids = [*tokenizer.encode("a🎉")[: cut + 1], tokenizer.encode("🎉")[-1]]
    content, *_ = run(TextStream(tokenizer.detokenizer()), [[token] for token in token_ids])
    assert content == tokenizer.decode(token_ids)


def test_text_without_parsers_is_content(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer.detokenizer())
    assert list(stream.feed(TokenEvent("id", tokenizer.encode("<think>")))) == [ContentDelta("<think>")]


def test_reasoning_tokens_precede_the_answer(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer.detokenizer(), reasoning=Qwen3ReasoningParser(in_reasoning=True))
    run(stream, [[token] for token in tokenizer.encode("Hm</think>Yes")])
    assert stream.num_reasoning_tokens == len("Hm</think>")


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_tokens_after_a_stop_string_are_not_counted(tokenizer: Tokenizer, size: int) -> None:
    stream = TextStream(tokenizer.detokenizer(), stop=["lo"])
    token_ids = tokenizer.encode("Hello you")
    lists = [token_ids[i : i + size] for i in range(0, len(token_ids), size)]
    assert run(stream, lists)[0] == "Hel"
    assert (len(stream.token_ids), stream.finish_reason, stream.stopped_by) == (5, "stop", "lo")


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_chunking_does_not_change_the_reasoning_count(tokenizer: Tokenizer, size: int) -> None:
    stream = TextStream(tokenizer.detokenizer(), reasoning=Qwen3ReasoningParser())
    token_ids = tokenizer.encode("<think>abc</think>defghi")
    run(stream, [token_ids[i : i + size] for i in range(0, len(token_ids), size)])
    one_by_one = TextStream(tokenizer.detokenizer(), reasoning=Qwen3ReasoningParser())
    run(one_by_one, [[token] for token in token_ids])
    assert stream.num_reasoning_tokens == one_by_one.num_reasoning_tokens


def test_tokens_of_one_event_are_one_delta(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer.detokenizer(), stop=["zz"], reasoning=Qwen3ReasoningParser())
    deltas = stream.feed(TokenEvent("id", tokenizer.encode("<think>abc</think>def")))
    assert deltas == [ReasoningDelta("abc"), ContentDelta("def")]
