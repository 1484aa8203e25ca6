"""What a request says of tools becomes what the model sees, what it may call, and the grammar that holds it to that."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from llmfw.core.interfaces.parsers import CallFormat
from llmfw.plugins.parsers_families.hermes import HermesToolParser

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import MARKERS, Served, byte_tokenizer, serving

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CALL = '<tool_call>\n{"name": "f", "arguments": {"city": "Rome"}}\n</tool_call>'
TEMPLATE = "{{ messages[-1].content }}{% for tool in tools or [] %}|{{ tool.function.name }}{% endfor %}"


class Held(HermesToolParser):
    call_format = CallFormat(
        begin='<tool_call>\n{"name": "{name}", "arguments": ',
        end="}\n</tool_call>",
        trigger="<tool_call>",
    )


class Listed(HermesToolParser):
    call_format = CallFormat(
        begin='{"name": "{name}", "parameters": ', end="}", trigger="{", between=", ", before="[", after="]"
    )


class Free(HermesToolParser):
    call_format = None


def tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": SCHEMA, **fields}}


def tag(name: str, schema: Any = SCHEMA, calls: CallFormat = Held.call_format) -> dict[str, Any]:
    return {
        "type": "tag",
        "begin": calls.begin.replace("{name}", name),
        "content": {"type": "json_schema", "json_schema": schema},
        "end": calls.end,
    }


def joined(*tags: dict[str, Any], one: bool = False, separator: str = "\n") -> dict[str, Any]:
    return {
        "type": "tags_with_separator",
        "tags": list(tags),
        "separator": separator,
        "at_least_one": True,
        "stop_after_first": one,
    }


def serve(tmp_path_factory: pytest.TempPathFactory, **parts: Any) -> Any:
    tokenizer = byte_tokenizer(tmp_path_factory.mktemp("model"), MARKERS)
    return serving(EchoEngine(), tokenizer, TEMPLATE, **parts)


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tmp_path_factory, tool_parser=Held) as served:
        yield served


@pytest.fixture(scope="module")
def free(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tmp_path_factory, tool_parser=Free, json_tool_parser=Listed) as served:
        yield served


def format_asked(server: Served, text: str = "Hi", **fields: Any) -> Any:
    """Return the format that the engine was given for a chat."""
    reply = server.chat(text, **fields)
    assert reply.status_code == 200, reply.text
    grammar = server.engine.requests[-1].grammar
    return grammar and json.loads(grammar.source)["format"]


def error_of(server: Served, **fields: Any) -> Any:
    reply = server.chat("Hi", **fields)
    assert reply.status_code == 400
    return reply.json()["error"]


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def allowed(mode: str, *names: str) -> dict[str, Any]:
    return {
        "type": "allowed_tools",
        "allowed_tools": {"mode": mode, "tools": [named(name) for name in names]},
    }


TOOLS = [tool("f"), tool("g", parameters=None)]


def test_required_allows_only_calls(held: Served) -> None:
    found = format_asked(held, tools=TOOLS, tool_choice="required")
    assert found == joined(tag("f"), tag("g", {"type": "object"}))


def test_required_without_parallel_calls_allows_one_call(held: Served) -> None:
    found = format_asked(held, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
    assert found["stop_after_first"] is True


def test_a_named_tool_allows_one_call(held: Served) -> None:
    found = format_asked(held, tools=TOOLS, tool_choice=named("f"))
    assert found == joined(tag("f"), one=True)


def test_auto_without_strict_tools_is_unconstrained(held: Served) -> None:
    assert format_asked(held, tools=TOOLS) is None
    assert format_asked(held, tools=TOOLS, tool_choice="auto", parallel_tool_calls=False) is None


def test_auto_enforces_strict_tools_schemas(held: Served) -> None:
    found = format_asked(held, tools=[tool("f", strict=True), tool("g")])
    assert found == {
        "type": "triggered_tags",
        "triggers": ["<tool_call>"],
        "tags": [tag("f"), tag("g", {"type": "object"})],
        "at_least_one": False,
        "stop_after_first": False,
    }


def test_only_allowed_tools_can_be_called(held: Served) -> None:
    """The model still sees all tools."""
    found = format_asked(held, tools=TOOLS, tool_choice=allowed("auto", "f"))
    assert [each["begin"] for each in found["tags"]] == [tag("f")["begin"]]
    shown = held.engine.requests[-1].prompt
    format_asked(held, tools=TOOLS)
    assert held.engine.requests[-1].prompt == shown
    assert format_asked(held, tools=TOOLS, tool_choice=allowed("required", "f")) == joined(tag("f"))


def test_a_response_format_allows_format_or_calls(held: Served) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
    either = format_asked(held, tools=[tool("f")], response_format=form)
    answer = {"type": "json_schema", "json_schema": SCHEMA}
    assert either == {"type": "or", "elements": [answer, joined(tag("f", {"type": "object"}))]}
    required = format_asked(held, tools=[tool("f")], response_format=form, tool_choice="required")
    assert required == joined(tag("f"))


def test_tool_choice_none_keeps_the_response_format(held: Served) -> None:
    form = {"type": "structural_tag", "format": {"type": "any_text", "excludes": []}}
    assert format_asked(held, tools=TOOLS, tool_choice="none", response_format=form) == form["format"]


@pytest.mark.parametrize(
    ("choice", "reason"), [("auto", "tool_calls"), ("required", "tool_calls"), (named("f"), "stop")]
)
def test_the_finish_reason_is_openai_s(held: Served, choice: Any, reason: str) -> None:
    for stream in (False, True):
        reply = held.chat(CALL + " ", tools=[tool("f")], tool_choice=choice, stream=stream)
        assert f'"finish_reason":"{reason}"' in reply.text
        assert '"name":"f"' in reply.text


def test_required_calls_fall_back_to_json(free: Served) -> None:
    found = format_asked(free, tools=[tool("f")], tool_choice="required")
    tags = joined(tag("f", calls=Listed.call_format), separator=", ")
    const = [{"type": "const_string", "value": text} for text in "[]"]
    assert found == {"type": "sequence", "elements": [const[0], tags, const[1]]}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [tool("g"), tool("f", strict=True)]}, "tools[1].function.strict"),
        ({"tools": [tool("f")], "response_format": {"type": "json_object"}}, "response_format"),
    ],
)
def test_unenforceable_tool_fields_are_refused(free: Served, fields: Any, param: str) -> None:
    assert error_of(free, **fields)["param"] == param


def test_disallowed_tools_are_hidden_without_a_grammar(free: Served) -> None:
    assert format_asked(free, tools=TOOLS, tool_choice=allowed("auto", "f")) is None
    prompt = free.engine.requests[-1].prompt
    free.post("/v1/completions", {"prompt": "Hi|f"})
    assert free.engine.requests[-1].prompt == prompt


def test_mistrals_any_suggests_required(held: Served) -> None:
    error = error_of(held, tools=TOOLS, tool_choice="any")
    assert error["param"] == "tool_choice"
    assert "tool_choice is 'any'; it must be required" in error["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": named("h")}, "tool_choice.function.name"),
        ({"tool_choice": allowed("auto", "f", "h")}, "tool_choice.allowed_tools.tools[1].function.name"),
        ({"tool_choice": allowed("any", "f")}, "tool_choice.allowed_tools.mode"),
        ({"tool_choice": allowed("auto")}, "tool_choice.allowed_tools.tools"),
        ({"tool_choice": {"type": "custom", "custom": {"name": "f"}}}, "tool_choice.type"),
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools[0].type"),
        ({"tools": [tool("f"), tool("f")]}, "tools[1].function.name"),
        ({"tools": [tool("x" * 65)]}, "tools[0].function.name"),
        ({"tools": [tool("f", parameters=[])]}, "tools[0].function.parameters"),
        ({"tools": [tool("f", parameters={"type": "array"})]}, "tools[0].function.parameters.type"),
        ({"tools": [tool("f", strict=1)]}, "tools[0].function.strict"),
        ({"tools": [tool("f", description=1)]}, "tools[0].function.description"),
    ],
)
def test_a_wrong_tool_or_choice_is_named(held: Served, fields: Any, param: str) -> None:
    error = error_of(held, **{"tools": TOOLS, **fields})
    assert error["param"] == param
    assert param in error["message"]
