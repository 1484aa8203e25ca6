"""Tokenizing and detokenizing over HTTP, against the tokenizer itself and against what a generation was given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer
from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.plugin.plugins import load_plugins

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import Served, serving

HI = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def demo() -> Iterator[Served]:
    """The demo model's tokenizer and template, before an engine that need not run."""
    tokenizer = load_tokenizer(resolve_model("demo", load_plugins().registry).path)
    engine = EchoEngine()
    engine.info = msgspec.structs.replace(engine.info, vocab_size=2**16)
    with serving(engine, tokenizer, tokenizer.chat_template) as served:
        yield served


@pytest.mark.parametrize("path", ["/v1/tokenize", "/tokenize"])
def test_tokenizing_a_prompt_equals_a_completion_s(server: Served, path: str) -> None:
    reply = server.post(path, {"prompt": "Hello"}).json()
    server.post("/v1/completions", {"prompt": "Hello"})
    tokens = list(server.engine.requests[-1].prompt)
    assert reply == {"tokens": tokens, "count": len(tokens), "max_model_len": 512}


@pytest.mark.parametrize("path", ["/v1/tokenizer_info", "/tokenizer_info"])
def test_tokenizer_info_has_tokens_and_template(demo: Served, path: str) -> None:
    tokenizer = load_tokenizer(resolve_model("demo", load_plugins().registry).path)
    info = httpx.get(demo.url + path).json()
    assert info.pop("chat_template") == tokenizer.chat_template
    assert info.items() <= tokenizer.special_tokens.items()
    [eos] = demo.post("/tokenize", {"prompt": info["eos_token"], "add_special_tokens": False}).json()[
        "tokens"
    ]
    assert eos in tokenizer.eos_token_ids


def test_several_prompts_give_several_lists(server: Served) -> None:
    reply = server.post("/v1/tokenize", {"prompt": ["A", "BCD"], "return_token_strs": True}).json()
    assert reply["count"] == [len(tokens) for tokens in reply["tokens"]] == [1, 3]
    assert reply["token_strs"] == [["A"], ["B", "C", "D"]]


def test_tokenizing_messages_equals_a_chat_s(server: Served) -> None:
    fields: dict[str, Any] = {"tools": [TOOL], "chat_template_kwargs": {"enable_thinking": True}}
    reply = server.post("/v1/tokenize", {"messages": HI, **fields}).json()
    server.chat("Hi", **fields)
    assert reply["tokens"] == list(server.engine.requests[-1].prompt)
    assert reply["count"] == len(reply["tokens"]) > len("Hi")


def test_add_generation_prompt_false_omits_the_turn(demo: Served) -> None:
    def text_of(**fields: Any) -> str:
        tokens = demo.post("/v1/tokenize", {"messages": HI, **fields}).json()["tokens"]
        body = {"tokens": tokens, "skip_special_tokens": False}
        return demo.post("/v1/detokenize", body).json()["text"]

    assert text_of(add_generation_prompt=False) == "<|im_start|>user\nHi<|im_end|>\n"
    assert text_of() == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_special_tokens_are_added_by_default(tmp_path: Path) -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer = load_tokenizer(resolve_model("demo", load_plugins().registry).path)
    start = tokenizer.encode("<|im_start|>")
    tokenizer._backend.post_processor = TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", start[0])]
    )
    with serving(EchoEngine(), tokenizer, "{{ messages[0].content }}") as served:

        def tokens_of(**body: Any) -> list[int]:
            return served.post("/v1/tokenize", body).json()["tokens"]

        bare = tokens_of(prompt="Hi", add_special_tokens=False)
        assert tokens_of(prompt="Hi") == start + bare
        assert tokens_of(messages=HI) == bare
        assert tokens_of(messages=HI, add_special_tokens=True) == start + bare


@settings(max_examples=20, deadline=None)
@given(text=st.text(st.characters(exclude_categories=("Cs",)), max_size=40))
def test_tokenizing_and_detokenizing_restore_the_text(demo: Served, text: str) -> None:
    tokens = demo.post("/v1/tokenize", {"prompt": text}).json()["tokens"]
    reply = demo.post("/detokenize", {"tokens": tokens, "skip_special_tokens": False}).json()
    assert reply == {"prompt": text, "text": text}


def test_token_lists_are_detokenized_to_texts(server: Served) -> None:
    lists = server.post("/v1/tokenize", {"prompt": ["Hi", "", "!"]}).json()["tokens"]
    assert server.post("/v1/detokenize", {"tokens": lists}).json()["text"] == ["Hi", "", "!"]


def test_special_tokens_are_skipped_by_default(demo: Served) -> None:
    tokens = demo.post("/v1/tokenize", {"prompt": "Hi<|im_end|>"}).json()["tokens"]
    assert demo.post("/v1/detokenize", {"tokens": tokens}).json()["text"] == "Hi"


def test_a_long_text_survives_tokenizing_and_detokenizing(server: Served) -> None:
    tokens = server.post("/v1/tokenize", {"prompt": "ab" * 1010}).json()["tokens"]
    assert server.post("/v1/detokenize", {"tokens": tokens}).json()["text"] == "ab" * 1010


WRONG: list[tuple[str, dict[str, Any], str, str]] = [
    ("tokenize", {}, "prompt", "prompt and messages are both missing"),
    ("tokenize", {"prompt": "a", "messages": HI}, "prompt", "both given"),
    ("tokenize", {"messages": []}, "messages", "messages is empty"),
    ("tokenize", {"messages": [{"role": "wizard?"}]}, "messages[0].role", "'wizard?'"),
    ("tokenize", {"prompt": "a", "chat_template": "x"}, "chat_template", "not supported"),
    ("tokenize", {"prompt": ["a"] * 2049}, "prompt", "2049 prompts; at most 2048"),
    ("tokenize", {"prompt": 5}, "prompt", "prompt is 5"),
    ("detokenize", {}, "tokens", "tokens is missing"),
    ("detokenize", {"tokens": [1, [2]]}, "tokens", "mixes kinds"),
    (
        "detokenize",
        {"tokens": [1, 1000, -7]},
        "tokens[1]",
        "tokens[1] is 1000, tokens[2] is -7; this model's",
    ),
    ("detokenize", {"tokens": [[1], [2, 1000]]}, "tokens[1][1]", "tokens[1][1] is 1000"),
    ("detokenize", {"tokens": [1000] * 9}, "tokens[0]", "and 4 more"),
]


@pytest.mark.parametrize(("path", "body", "param", "message"), WRONG)
def test_a_wrong_field_is_named(server: Served, path: str, body: Any, param: str, message: str) -> None:
    reply = server.post(f"/v1/{path}", body)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert error["param"] == param
    assert message in error["message"]


def test_another_model_is_not_found(server: Served) -> None:
    assert server.post("/v1/tokenize", {"prompt": "a", "model": "other"}).status_code == 404


def test_ignored_fields_are_reported_in_a_header(server: Served) -> None:
    reply = server.post("/v1/tokenize", {"prompt": "a", "frobnicate": 1})
    assert reply.headers["llmfw-ignored-params"] == "frobnicate"


def test_more_lists_of_tokens_than_prompts_are_refused(server: Served) -> None:
    assert len(server.post("/v1/detokenize", {"tokens": [[71]] * 2048}).json()["text"]) == 2048
    error = server.post("/v1/detokenize", {"tokens": [[71]] * 2049}).json()["error"]
    assert (error["param"], "2049" in error["message"]) == ("tokens", True)


def test_the_total_of_all_lists_is_limited(server: Served) -> None:
    most = 4 * server.engine.info.max_model_len
    lists = [[71] * most] * (2**17 // most + 1)
    error = server.post("/v1/detokenize", {"tokens": lists}).json()["error"]
    assert "at most 131072 are decoded" in error["message"]


def test_llama_cpps_content_suggests_prompt(server: Served) -> None:
    reply = server.post("/tokenize", {"content": "Hello"})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "content")
    assert reply.json()["error"]["message"].endswith(": content is called prompt here")
