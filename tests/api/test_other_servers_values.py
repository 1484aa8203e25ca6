"""Values that options have in other servers are answered with the value to use here."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from llmfw.api.cli import build_cli
from llmfw.api.commands.serve import serve_command
from llmfw.api.settings.other_servers_values import foreign_values
from llmfw.core.plugin.plugins import load_plugins

FLAGS = {option.name: option.opts[0] for option in serve_command.params}


def error_of(*line: str, environment: dict[str, str] | None = None) -> str:
    result = CliRunner().invoke(build_cli(), list(line), env=environment)
    assert result.exit_code == 2
    return result.stderr.splitlines()[-1]


@pytest.mark.parametrize(("field", "value", "here"), list(foreign_values()))
def test_a_foreign_value_suggests_ours(field: str, value: str, here: str) -> None:
    error = error_of("serve", "demo", FLAGS[field], value)
    assert value in error
    assert error.endswith(f"; {here}")


def test_suggested_parsers_exist() -> None:
    registry = load_plugins().registry
    for field, _, here in foreign_values():
        if field.endswith("_parser"):
            assert here.removeprefix("use ") in registry.names(field)


def test_suggested_load_formats_exist() -> None:
    """vLLM's option for GGUF files is answered with how to serve them here."""
    choices = next(option.type.choices for option in serve_command.params if option.name == "load_format")
    for field, value, here in foreign_values():
        if field == "load_format":
            assert here.removeprefix("use ").partition(",")[0] in choices, value


def test_a_foreign_value_of_the_environment_suggests_ours() -> None:
    error = error_of("serve", "demo", environment={"LLMFW_TOOL_PARSER": "qwen25"})
    assert re.search("LLMFW_TOOL_PARSER: unknown tool parser 'qwen25'.*; use hermes$", error)


@pytest.mark.parametrize(
    ("line", "here"),
    [
        ("bench --num-prompts 100", "--scale"),
        ("batch submit FILE --completion-window 24h", "--window"),
    ],
)
def test_foreign_options_of_other_commands_suggest_ours(tmp_path, line: str, here: str) -> None:
    (tmp_path / "in.jsonl").write_text("{}\n")
    error = error_of(*line.replace("FILE", str(tmp_path / "in.jsonl")).split())
    assert f"here it is {here}" in error
