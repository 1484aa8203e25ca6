"""Tools whose schemas define one name differently: each call is held to its own tool's definition."""

from __future__ import annotations

from typing import Any

import pytest

from llmfw.api.chat.tool_choice import calls_only, text_and_calls, tool_use
from llmfw.api.text.structured import tag_spec
from llmfw.plugins.parsers_families.hermes import HermesToolParser
from llmfw.plugins.parsers_families.json_calls import JsonCallsToolParser

from ..plugins.grammar_llguidance.walking import compiled, fits

FORMATS = {"required": calls_only, "auto": text_and_calls}


def tool(name: str, kind: str, keyword: str) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": f"#/{keyword}/Value"}},
        "required": ["a"],
        keyword: {"Value": {"type": kind}},
    }
    return {"type": "function", "function": {"name": name, "parameters": schema, "strict": True}}


@pytest.mark.parametrize("keyword", ["$defs", "definitions"])
@pytest.mark.parametrize(
    ("parser", "choice"),
    [(HermesToolParser, "required"), (HermesToolParser, "auto"), (JsonCallsToolParser, "required")],
)
def test_each_tool_keeps_its_own_definitions(parser: Any, choice: str, keyword: str) -> None:
    calls = parser.call_format
    use = tool_use([tool("f", "integer", keyword), tool("g", "boolean", keyword)], choice, None)
    spec = tag_spec(FORMATS[choice](use, calls))

    def may_call(name: str, arguments: str) -> bool:
        call = calls.begin.replace("{name}", name) + arguments + calls.end
        return bool(fits(compiled(spec.kind, spec.source), calls.before + call + calls.after))

    assert may_call("f", '{"a": 5}')
    assert may_call("g", '{"a": true}')
    assert not may_call("f", '{"a": true}')
    assert not may_call("g", '{"a": 5}')
