"""Each piece of an answer comes with the tokens that it is made of: none lost, none twice, in order."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.api.text.scored_tokens import LOWEST_LOGPROB, ScoredContent, ScoredToken
from llmfw.api.text.text_stream import Delta, TextStream
from llmfw.core.base.errors import EngineError
from llmfw.core.base.request import FinishReason, TokenEvent, TokenLogprob
from llmfw.core.interfaces.parsers import CallFormat
from llmfw.core.interfaces.tokenizer import Tokenizer
from llmfw.plugins.parsers_families.hermes import HermesToolParser
from llmfw.plugins.parsers_families.qwen3_reasoning import Qwen3ReasoningParser

from ...doubles.echo_engine import EOS, score
from ...doubles.serving import byte_tokenizer

TOOL = {"type": "function", "function": {"name": "f"}}
CALL = '<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>'


class Reasoning(Qwen3ReasoningParser):
    closing = "</think>"


class Calls(HermesToolParser):
    call_format = CallFormat(begin="<tool_call>", end="</tool_call>", trigger="<tool_call>")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return byte_tokenizer(tmp_path_factory.mktemp("model"))


def run(
    tokenizer: Tokenizer,
    cut: Sequence[list[int]],
    reason: FinishReason = FinishReason.LENGTH,
    **options: Any,
) -> tuple[TextStream, list[Delta]]:
    """Feed tokens until the end; return the stream and what it gave."""
    stream = TextStream(tokenizer.detokenizer(), token_bytes=tokenizer.token_bytes, **options)
    deltas: list[Delta] = []
    for i, token_ids in enumerate(cut):
        scores = [score(token_id, 2) for token_id in token_ids]
        end = reason if i == len(cut) - 1 else None
        deltas += stream.feed(TokenEvent("id", token_ids, end, logprobs=scores))
        if stream.finish_reason is not None:
            break
    return stream, deltas


def contents(deltas: Sequence[Delta]) -> list[ScoredContent]:
    return [delta for delta in deltas if isinstance(delta, ScoredContent)]


def tokens_of(deltas: Sequence[Delta]) -> list[ScoredToken]:
    return [token for delta in contents(deltas) for token in delta.tokens]


def cut_at(token_ids: list[int], places: list[int]) -> list[list[int]]:
    edges = [0, *sorted(place % (len(token_ids) + 1) for place in places), len(token_ids)]
    return [token_ids[a:b] for a, b in itertools.pairwise(edges)]


pieces = st.sampled_from(
    ["<think>", "</think>", "\n", " ", "a", "<", "é", "🎉", CALL, "<tool_call>", "</tool_call>", "sto", "p"]
)
texts = st.lists(pieces, max_size=12).map("".join)
places = st.lists(st.integers(0, 400))


@given(texts, places, st.booleans())
def test_content_tokens_spell_the_content(
    tokenizer: Tokenizer, text: str, places: list[int], in_reasoning: bool
) -> None:
    cut = cut_at(tokenizer.encode(text), places)
    parsers = {"reasoning": Reasoning(in_reasoning=in_reasoning), "tools": Calls([TOOL])}
    _, deltas = run(tokenizer, cut, stop=["stop"], **parsers)
    shown = "".join(delta.text for delta in contents(deltas))
    tokens = tokens_of(deltas)
    assert b"".join(token.bytes for token in tokens) == shown.encode()
    assert [t.start for t in tokens] == sorted(t.start for t in tokens)


@given(texts, places)
def test_characters_bring_their_tokens_in_any_chunking(
    tokenizer: Tokenizer, text: str, places: list[int]
) -> None:
    token_ids = tokenizer.encode(text)
    _, deltas = run(tokenizer, cut_at(token_ids, places))
    for delta in contents(deltas):
        assert b"".join(token.bytes for token in delta.tokens) == delta.text.encode()
    assert [token.token_id for token in tokens_of(deltas)] == token_ids


def test_reasoning_calls_and_markers_have_no_entries(tokenizer: Tokenizer) -> None:
    text = f"<think>Hm, ok</think>\n\nOk. {CALL}"
    cut = [[token] for token in [*tokenizer.encode(text), EOS]]
    parsers = {"reasoning": Reasoning(), "tools": Calls([TOOL])}
    stream, deltas = run(tokenizer, cut, FinishReason.STOP, **parsers)
    assert b"".join(token.bytes for token in tokens_of(deltas)) == b"Ok."
    assert len(stream.scored_tokens) == len(cut)


def test_a_token_cut_by_a_stop_string_stays(demo: Tokenizer) -> None:
    token_ids = demo.encode("The capital of France")
    _, deltas = run(demo, [[token] for token in token_ids], stop=["ital"])
    assert "".join(delta.text for delta in contents(deltas)) == "The cap"
    assert b"".join(token.bytes for token in tokens_of(deltas)) == b"The capital"


def test_held_back_text_brings_its_tokens_later(tokenizer: Tokenizer) -> None:
    cut = [[token] for token in tokenizer.encode("a st a")]
    _, deltas = run(tokenizer, cut, stop=["stop"])
    assert [(d.text, len(d.tokens)) for d in contents(deltas)] == [("a", 1), (" ", 1), ("st ", 3), ("a", 1)]


def test_a_character_cut_off_brings_its_tokens(tokenizer: Tokenizer) -> None:
    cut = [[token] for token in [*tokenizer.encode("a🎉")[:3], EOS]]
    stream, deltas = run(tokenizer, cut, FinishReason.STOP)
    assert "".join(delta.text for delta in contents(deltas)) == "a\ufffd"
    assert [token.bytes for token in tokens_of(deltas)] == [b"a", b"\xf0", b"\x9f"]
    assert [(token.start, token.token_id) for token in stream.rest] == [(2, EOS)]


def test_a_stop_string_leaves_no_rest(tokenizer: Tokenizer) -> None:
    stream, _ = run(tokenizer, [[token] for token in tokenizer.encode("a stop")], stop=["stop"])
    assert list(stream.rest) == []


def test_zero_probability_becomes_a_finite_number(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer.detokenizer(), token_bytes=tokenizer.token_bytes)
    never = TokenLogprob(-float("inf"), [1], [-float("inf")])
    [delta] = contents(stream.feed(TokenEvent("id", tokenizer.encode("a"), logprobs=[never])))
    assert delta.tokens[0].logprob == delta.tokens[0].top[0].logprob == LOWEST_LOGPROB


def test_missing_requested_logprobs_are_an_error(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer.detokenizer(), token_bytes=tokenizer.token_bytes)
    with pytest.raises(EngineError, match="log prob"):
        stream.feed(TokenEvent("id", [65]))
