"""Families whose calls no grammar describes: calls that have to be made are a bare JSON array, by the demo model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from llmfw.api.text.grammar_check import GrammarChecker
from llmfw.core.base.config import EngineConfig
from llmfw.core.engine.generation.build import build_generation_engine
from llmfw.core.model.tokenizer.tokenizer_files import load_tokenizer
from llmfw.core.plugin.model_name import resolve_model
from llmfw.core.plugin.plugins import load_plugins

from ..doubles.serving import Served, serving
from .wire_calls import WEATHER

NAMED = {"type": "function", "function": {"name": "get_weather"}}
SCHEMA = WEATHER["function"]["parameters"]


@pytest.fixture(scope="module", params=["pythonic", "qwen3_coder"])
def bare(request: pytest.FixtureRequest) -> Iterator[Served]:
    registry = load_plugins().registry
    path = resolve_model("demo", registry).path
    tokenizer = load_tokenizer(path)
    engine = build_generation_engine(
        EngineConfig(model=path, dtype="float32", max_total_tokens=8192), registry
    )
    size = engine.info.vocab_size
    parts = {
        "grammar_checker": GrammarChecker(registry.find("grammar", "llguidance"), tokenizer, size),
        "tool_parser": registry.find("tool_parser", request.param).load(),
        "json_tool_parser": registry.find("tool_parser", "json_calls").load(),
    }
    with serving(engine, tokenizer, tokenizer.chat_template, name="demo", **parts) as served:
        yield served


def fields(choice: Any, thinks: bool) -> dict[str, Any]:
    return {
        "tools": [WEATHER],
        "tool_choice": choice,
        "parallel_tool_calls": False,
        "n": 2,
        "seed": 4,
        "temperature": 1.3,
        "max_tokens": 250,
        "chat_template_kwargs": {"enable_thinking": thinks},
    }


@pytest.mark.long
@pytest.mark.parametrize("thinks", [False, True])
@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_one_forced_call_is_returned_in_each_choice(bare: Served, choice: Any, thinks: bool) -> None:
    """A stream gives the same."""
    body = fields(choice, thinks)
    reason = "tool_calls" if choice == "required" else "stop"
    whole = bare.chat("Tell me a story.", **body).json()["choices"]
    calls = [
        [("get_weather", call["function"]["arguments"]) for call in c["message"]["tool_calls"]] for c in whole
    ]
    for of_choice, made in zip(whole, calls, strict=True):
        assert (of_choice["finish_reason"], of_choice["message"]["content"]) == (reason, None)
        assert bool(of_choice["message"]["reasoning_content"]) == thinks
        [(_, arguments)] = made
        jsonschema.validate(json.loads(arguments), SCHEMA)
    assert streamed(bare.chat("Tell me a story.", stream=True, **body).text) == calls


def streamed(text: str) -> list[list[tuple[str, str]]]:
    """Return the calls of each choice of a stream."""
    found: dict[int, dict[int, tuple[str, str]]] = {0: {}, 1: {}}
    for line in text.splitlines():
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                for call in choice["delta"].get("tool_calls", ()):
                    name, arguments = found[choice["index"]].get(call["index"], ("", ""))
                    function = call["function"]
                    found[choice["index"]][call["index"]] = (
                        name + function.get("name", ""),
                        arguments + function.get("arguments", ""),
                    )
    return [list(found[index].values()) for index in sorted(found)]
