"""A plugin's command that raises ends with one line, unless its author asks for the traceback."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from llmfw.api.cli import build_cli


class Panic(BaseException):
    pass


@click.command()
@click.argument("kind")
def faulty(kind: str) -> None:
    """Raise."""
    raise {"exception": ValueError("a\x1b[31m\nb"), "panic": Panic("x"), "exit": SystemExit(4)}[kind]


@pytest.fixture
def cli() -> click.Group:
    group = build_cli()
    group.add_command(faulty)
    return group


@pytest.mark.parametrize(("kind", "said"), [("exception", "ValueError: a [31m b"), ("panic", "Panic: x")])
def test_a_raising_command_ends_with_one_line(cli: click.Group, kind: str, said: str) -> None:
    done = CliRunner().invoke(cli, ["faulty", kind])
    assert done.output == (
        f"Error: command 'faulty', which a plugin brings, failed: {said}; LLMFW_STRICT_PLUGINS=1 shows the traceback\n"
    )
    assert done.exit_code == 1


def test_an_author_sees_the_traceback(cli: click.Group, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMFW_STRICT_PLUGINS", "1")
    done = CliRunner().invoke(cli, ["faulty", "exception"])
    assert isinstance(done.exception, ValueError)


def test_a_commands_own_exit_code_stays(cli: click.Group) -> None:
    assert CliRunner().invoke(cli, ["faulty", "exit"]).exit_code == 4
