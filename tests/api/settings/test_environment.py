"""Environment variables that look like settings and are none are named as a server starts."""

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


def test_serve_warns_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMFW_CONTXT_LENGTH", "1")
    result = CliRunner().invoke(build_cli(), ["serve", "./missing"])
    lines = [line for line in result.stderr.splitlines() if "LLMFW" in line]
    assert lines == [
        "warning: llmfw does not know the environment variable LLMFW_CONTXT_LENGTH (did you mean LLMFW_CONTEXT_LENGTH?)"
    ]
