"""Commands of other servers are answered with the command to use here."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from llmfw.api.cli import COMMANDS, build_cli
from llmfw.api.commands.other_servers_commands import commands_of_others


@pytest.mark.parametrize(("command", "here"), list(commands_of_others()))
def test_a_foreign_command_suggests_ours(command: str, here: str) -> None:
    result = CliRunner().invoke(build_cli(), [command, "qwen3"])
    assert result.exit_code == 2
    last = result.stderr.splitlines()[-1]
    assert re.fullmatch(rf"Error: `{command}` is a command of \w+; here: {re.escape(here)}", last)


def test_answers_name_existing_commands() -> None:
    named = {name for _, here in commands_of_others() for name in re.findall(r"`llmfw (\w+)", here)}
    assert named <= {command.name for command in COMMANDS} | {"bench", "models"}


def test_an_unknown_command_stays_unknown() -> None:
    result = CliRunner().invoke(build_cli(), ["nonesuch"])
    assert "No such command 'nonesuch'" in result.stderr
