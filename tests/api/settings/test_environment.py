"""Environment variables that look like settings and are none are named by each command that reads settings."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from llmfw.api.cli import build_cli
from llmfw.api.commands.serve import serve_command
from llmfw.api.settings.environment import OTHERS, warning_of
from llmfw.api.settings.option import SettingOption

OPTIONS = [param for param in serve_command.params if isinstance(param, SettingOption)]


def test_an_unknown_variable_is_named_with_the_nearest() -> None:
    given = {"LLMFW_PROT": "1", "LLMFW_Policy": "x", "LLMFW_ZZZ": "secret", "PATH": "/", "LLMFW_EMPTY": ""}
    assert warning_of(given, OPTIONS) == (
        "llmfw does not know the environment variables LLMFW_PROT (did you mean LLMFW_PORT?), "
        "LLMFW_Policy (did you mean LLMFW_POLICY?), LLMFW_ZZZ"
    )
    line = warning_of({"LLMFW_\x1b[2J\n": "1"}, OPTIONS)
    assert line is not None
    assert line.isprintable()


@pytest.mark.parametrize(
    "name",
    [
        *OTHERS,
        *(str(option.variable) for option in OPTIONS if option.variable),
        "LLMFW_CONFIG",
        "LLMFW_MODEL",
        "LLMFW_POLICY__B",
        "LLMFW_TEST_LENGTH",
        "LLMFW_SERVICE_PORT_HTTP",
        "LLMFW_PORT_80_TCP_ADDR",
    ],
)
def test_known_variables_are_quiet(name: str) -> None:
    assert warning_of({name: "1"}, OPTIONS) is None


@pytest.mark.parametrize(
    "command",
    [
        ["serve", "./missing"],
        ["serve", "--show-config"],
        ["batch", "run", __file__, "./missing", "--output", "./out"],
        ["plan", "./missing", "--device", "h100"],
        ["cache", "show", "--url", "http://127.0.0.1:1"],
        ["policy", "show", "--url", "http://127.0.0.1:1"],
    ],
    ids=lambda args: " ".join(args[:2]),
)
def test_commands_that_read_settings_warn_once(monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    """A setting of the server alone, such as a port, is known to the other commands, too."""
    monkeypatch.setenv("LLMFW_CONTXT_LENGTH", "1")
    monkeypatch.setenv("LLMFW_PORT", "8000")
    result = CliRunner().invoke(build_cli(), command)
    lines = [line for line in result.stderr.splitlines() if "LLMFW" in line]
    assert lines == [
        "warning: llmfw does not know the environment variable LLMFW_CONTXT_LENGTH (did you mean LLMFW_CONTEXT_LENGTH?)"
    ]


@pytest.mark.parametrize("command", [["serve", "--help"], ["chat", "--url", "http://127.0.0.1:1"]])
def test_help_and_other_commands_do_not_warn(monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    monkeypatch.setenv("LLMFW_CONTXT_LENGTH", "1")
    assert "LLMFW_CONTXT" not in CliRunner().invoke(build_cli(), command).stderr
