"""A plugin's command is imported when it is needed, and what is wrong with it then is one line."""

from __future__ import annotations

from click.testing import CliRunner, Result

from llmfw.api.cli import build_cli

DECLARATION = """
from llmfw.core.interfaces.lazy_command import LazyCommand

@hookimpl
def register_commands(cli):
    cli.add_command(LazyCommand("greet", f"{__name__}_command:greet", "Say hello."))
"""
COMMAND = """
import click

@click.command()
@click.option("--name", help="Whose.")
def greet(name):
    "Say hello to someone."
    click.echo(f"hello {name}")
"""


def llmfw(*line: str) -> Result:
    return CliRunner().invoke(build_cli(), line)


def install(install_plugin, source: str) -> None:
    folder = install_plugin("ours", DECLARATION)
    [module] = [path.stem for path in folder.glob("plugin_*.py")]
    (folder / f"{module}_command.py").write_text(source)


def test_a_lazy_command_runs_and_shows_help(install_plugin):
    install(install_plugin, COMMAND)
    assert llmfw("greet", "--name", "Ann").stdout == "hello Ann\n"
    assert "--name TEXT" in llmfw("greet", "--help").stdout


def test_listing_commands_does_not_import_them(install_plugin):
    install(install_plugin, "raise OSError('disk')")
    assert "greet     Say hello.\n" in llmfw("--help").stdout
    assert llmfw("plugins").exit_code == 0


def test_an_unimportable_command_is_one_line(install_plugin):
    install(install_plugin, "raise OSError('disk')")
    result = llmfw("greet")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: command 'greet' (plugin_")
    assert result.stderr.endswith("_command:greet) cannot be imported: OSError: disk\n")
