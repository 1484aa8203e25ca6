"""Names that other servers give to fields: they do the same, and contradictions are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from llmfw.core.base.request import GrammarSpec

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import Served, byte_tokenizer, serving

SCHEMA: Any = {"type": "object", "properties": {"a": {"type": "integer"}}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}
GBNF = 'root ::= "yes" | "no"'


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose chat template does not know of thinking."""
    template = "{{ messages[-1].content }}"
    with serving(EchoEngine(), byte_tokenizer(tmp_path_factory.mktemp("model")), template) as served:
        yield served


def refused(reply: Any) -> str:
    assert reply.status_code == 400, reply.text
    return str(reply.json()["error"]["param"])


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
def test_repeat_penalty_is_the_repetition_penalty(server: Served, path: str) -> None:
    base = {"prompt": "a"} if path == "completions" else {"messages": [{"role": "user", "content": "a"}]}
    for fields in ({"repeat_penalty": 1.3}, {"repeat_penalty": 1.3, "repetition_penalty": 1.3}):
        reply = server.post(f"/v1/{path}", base | fields)
        assert (reply.status_code, "llmfw-ignored-params" in reply.headers) == (200, False)
        assert server.engine.requests[-1].sampling.repetition_penalty == 1.3
    for fields in ({"repeat_penalty": -1.0}, {"repeat_penalty": 1.3, "repetition_penalty": 1.2}):
        assert refused(server.post(f"/v1/{path}", base | fields)) == "repeat_penalty"


def test_thinking_token_budget_is_the_thinking_budget(server: Served) -> None:
    assert server.chat("Hi", thinking_token_budget=9).status_code == 200
    assert server.engine.requests[-1].thinking.budget == 9
    for fields in ({"thinking_token_budget": -5}, {"thinking_token_budget": 5, "thinking_budget": 6}):
        assert refused(server.chat("Hi", **fields)) == "thinking_token_budget"


@pytest.mark.parametrize("value", [True, False])
def test_enable_thinking_reaches_the_template(server: Served, value: bool) -> None:
    for fields in ({}, {"reasoning_effort": "none" if value else "high"}):
        assert server.chat("Hi", enable_thinking=value, **fields).status_code == 200
        prompt = bytes(t for t in server.engine.requests[-1].prompt if t < 256)
        assert server.engine.requests[-1].prompt[-1] == (996 if value else prompt[-1])
    kwargs = {"enable_thinking": not value}
    reply = server.chat("Hi", enable_thinking=value, chat_template_kwargs=kwargs)
    assert refused(reply) == "enable_thinking"


def test_enable_thinking_is_refused_if_unread(plain: Served) -> None:
    assert refused(plain.chat("Hi", enable_thinking=False)) == "enable_thinking"
    assert plain.chat("Hi", enable_thinking=None).status_code == 200


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
def test_grammar_of_llama_cpp_constrains_the_output(server: Served, path: str) -> None:
    base = {"prompt": "a"} if path == "completions" else {"messages": [{"role": "user", "content": "a"}]}
    assert server.post(f"/v1/{path}", base | {"grammar": GBNF}).status_code == 200
    assert server.engine.requests[-1].grammar == GrammarSpec("ebnf", GBNF)
    assert server.post(f"/v1/{path}", base | {"grammar": ""}).status_code == 200
    assert server.engine.requests[-1].grammar is None


def test_gbnf_constrains_and_invalid_gbnf_is_refused(demo_server: Served) -> None:
    reply = demo_server.chat("Is Paris in France?", grammar=GBNF, temperature=0, max_tokens=20)
    assert reply.json()["choices"][0]["message"]["content"] in ("yes", "no")
    assert refused(demo_server.chat("Hi", grammar='root ::= "yes')) == "grammar"


@pytest.mark.parametrize(
    "fields",
    [
        {"guided_json": SCHEMA, "response_format": FORMAT},
        {
            "json_schema": '{"type": "object", "properties": {"a": {"type": "integer"}}}',
            "guided_json": SCHEMA,
        },
        {"regex": "a+", "guided_regex": "a+", "structured_outputs": {"regex": "a+"}},
        {"choice": ["a", "b"], "guided_choice": ["a", "b"]},
        {"ebnf": GBNF, "grammar": GBNF},
        {"response_format": {"type": "text"}, "regex": "a"},
    ],
)
def test_equal_constraints_under_two_names_pass(server: Served, fields: Any) -> None:
    assert server.chat("Hi", **fields).status_code == 200
    assert server.engine.requests[-1].grammar is not None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"guided_json": {"type": "object"}, "response_format": FORMAT}, "guided_json"),
        ({"regex": "a+", "guided_regex": "a"}, "guided_regex"),
        ({"choice": ["a", "b"], "guided_choice": ["b", "a", "c"]}, "guided_choice"),
        ({"ebnf": GBNF, "regex": "a"}, "ebnf"),
        (
            {"regex": "a", "guided_regex": "a", "structured_outputs": {"regex": "b"}},
            "structured_outputs.regex",
        ),
    ],
)
def test_different_constraints_are_refused(server: Served, fields: Any, param: str) -> None:
    assert refused(server.chat("Hi", **fields)) == param


@pytest.mark.parametrize(
    "choice",
    [
        "auto",
        "required",
        {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]},
        },
    ],
)
def test_a_choice_without_tools_is_refused(server: Served, choice: Any) -> None:
    assert refused(server.chat("Hi", tool_choice=choice)) == "tool_choice"


def test_no_choice_needs_no_tools(server: Served) -> None:
    assert server.chat("Hi", tool_choice="none").status_code == 200
    assert server.chat("Hi", tool_choice="auto", tools=[]).status_code == 200
    assert server.post("/v1/responses", {"input": "Hi", "tool_choice": "auto"}).status_code == 200


def test_an_empty_cache_salt_is_refused(server: Served) -> None:
    assert refused(server.chat("Hi", cache_salt="")) == "cache_salt"
    assert refused(server.post("/v1/completions", {"prompt": "a", "cache_salt": ""})) == "cache_salt"
    assert refused(server.post("/generate", {"text": "a", "cache_salt": ""})) == "cache_salt"
