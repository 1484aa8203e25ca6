"""A grammar waits for the end of the thinking, and a budget ends it, where the tokenizer can tell where that is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llmfw.api.chat.thinking import thinking_of
from llmfw.core.base.errors import RequestError
from llmfw.core.base.request import Thinking
from llmfw.core.interfaces.tokenizer import Tokenizer
from llmfw.plugins.parsers_families.harmony import GptOssReasoningParser
from llmfw.plugins.parsers_families.qwen3_reasoning import Qwen3ReasoningParser

from ..doubles.serving import MARKERS, Served, byte_tokenizer

OPEN, CLOSE, BREAK = 996, 997, 198  # as `byte_tokenizer` numbers them


def thinking(folder: Path, prompt: str, *, markers: Any = MARKERS, **fields: Any) -> Thinking | None:
    asked = {"budget": None, "grammar_param": "regex", "parser": Qwen3ReasoningParser, **fields}
    parser = asked.pop("parser")
    return thinking_of(parser, byte_tokenizer(folder, markers), prompt, **asked)


def test_the_markers_are_single_tokens(tmp_path: Path) -> None:
    assert thinking(tmp_path, "Hi") == Thinking(begin=(OPEN,), end=(CLOSE,), space=(BREAK,))


def test_an_opened_prompt_starts_inside_the_thinking(tmp_path: Path) -> None:
    found = thinking(tmp_path, "Hi<think>\n", budget=7)
    assert found == Thinking(begin=(OPEN,), end=(CLOSE,), is_open=True, budget=7, space=(BREAK,))


def test_always_thinking_models_start_inside_the_thinking(tmp_path: Path) -> None:
    class Always(Qwen3ReasoningParser):
        def __init__(self, *, in_reasoning: bool = False) -> None:
            super().__init__(in_reasoning=True)

    class Unopened(Qwen3ReasoningParser):
        opening = None  # type: ignore[assignment]

    for parser, begin in ((Always, (OPEN,)), (Unopened, ())):
        found = thinking(tmp_path, "Hi", parser=parser)
        assert found == Thinking(begin=begin, end=(CLOSE,), is_open=True, space=(BREAK,))
    assert thinking(tmp_path, "<think></think>", parser=Always) is None


@pytest.mark.parametrize(
    ("prompt", "fields"),
    [
        ("<think>\n\n</think>\n\n", {}),
        ("Hi", {"grammar_param": None}),
        ("Hi", {"parser": None}),
    ],
)
def test_thinking_is_absent_if_unneeded(tmp_path: Path, prompt: str, fields: Any) -> None:
    assert thinking(tmp_path, prompt, **fields) is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"budget": -1}, "thinking_budget"),
        ({"budget": 5, "parser": None}, "thinking_budget"),
        ({"budget": 5, "markers": ()}, "thinking_budget"),
        ({"markers": ()}, "regex"),
    ],
)
def test_impossible_thinking_fields_are_refused(tmp_path: Path, fields: Any, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        thinking(tmp_path, "Hi", **fields)
    assert caught.value.param == param


def test_the_engine_receives_budget_and_grammar(server: Served) -> None:
    server.chat("Hi", thinking_budget=9, chat_template_kwargs={"enable_thinking": True}, regex="a")
    request = server.engine.requests[-1]
    assert request.thinking == Thinking(begin=(OPEN,), end=(CLOSE,), is_open=True, budget=9, space=(BREAK,))
    assert request.grammar is not None


def test_plain_chats_send_no_thinking(server: Served) -> None:
    server.chat("Hi")
    assert server.engine.requests[-1].thinking is None


def test_a_marker_has_context_free_tokens(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer(tmp_path, MARKERS)
    assert tokenizer.marker("</think>") == (CLOSE,)
    assert tokenizer.marker("<think>\n\n</think>") == tuple(tokenizer.encode("<think>\n\n</think>"))
    assert tokenizer.marker("</think>\n") is None
    assert tokenizer.marker("") is None


def test_with_calls_the_markers_are_message_markers(tmp_path: Path) -> None:
    markers = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>")
    prompt = "<|start|>assistant"
    ids = byte_tokenizer(tmp_path, markers).added_tokens()
    channel, message, end = ids["<|channel|>"], ids["<|message|>"], ids["<|end|>"]
    options: Any = {"parser": GptOssReasoningParser, "markers": markers, "budget": 3}
    text = thinking(tmp_path, prompt, **options)
    assert text is not None
    assert (text.begin, text.is_open, text.end[0], text.end[-1]) == ((), True, channel, message)
    calls = thinking(tmp_path, prompt, may_call=True, **options)
    assert calls is not None
    assert (calls.begin[0], calls.begin[-1], calls.end, calls.is_open) == (channel, message, (end,), False)
    opened = thinking(tmp_path, f"{prompt}<|channel|>analysis<|message|>", may_call=True, **options)
    assert opened is not None
    assert opened.is_open


def test_one_space_token_may_follow_the_marker(demo: Tokenizer) -> None:
    found = thinking_of(Qwen3ReasoningParser, demo, "Hi", budget=None, grammar_param="regex")
    assert found is not None
    assert found.space
    for token in found.space:
        assert demo.decode([token]) in ("\n", "\n\n")
    for text in ("</think>\n", "</think>\n\n"):
        assert demo.encode(text)[-1] in found.space
