"""The `llmfw` command: its own commands, plugins' commands, and the display of errors.

It starts without torch and Litestar, and imports only the command that runs. `build_cli` creates a new command line at
each call, because plugins add to it.
"""

from __future__ import annotations

import os
from typing import Any

import click

from llmfw.core.base.about import DISTRIBUTION
from llmfw.core.base.errors import ComponentError, LLMFWError
from llmfw.core.interfaces.lazy_command import LazyCommand

from .commands.lazy_group import LazyGroup
from .commands.other_servers_commands import advice_on

_OWN = (
    ("serve", "serve:serve_command", "Serve MODEL to OpenAI clients."),
    ("chat", "chat:chat_command", "Chat with the model of a running server."),
    ("complete", "complete:complete_command", "Continue a text with the model of a running server."),
    ("batch", "batch.group:batch_group", "Run files of requests, in a running server or without one."),
    (
        "plan",
        "plan.command:plan_command",
        "Say whether a model fits on a GPU, and how many requests with it.",
    ),
    (
        "plugins",
        "plugins:plugins_group",
        "List every registered component, and the plugins that did not load.",
    ),
    ("plugin", "scaffold.command:plugin_group", "Write a plugin of your own."),
    ("check", "check:check_command", "Run the conformance tests of an installed component."),
    ("cache", "admin:cache_group", "Show or flush the prefix cache of a running server, and pin prefixes."),
    ("policy", "admin:policy_group", "Show or change the scheduling policy of a running server."),
    (
        "trace",
        "admin:trace_command",
        "Show why a request waited, and how much of its prompt was cached.",
    ),
    ("debug", "debug.group:debug_group", "Find a fault, and pack a bug report."),
)
INTERRUPTED = 130
"""Exit code after Ctrl-C, as of a command that SIGINT has ended."""

COMMANDS = tuple(LazyCommand(name, f"llmfw.api.commands.{path}", summary) for name, path, summary in _OWN)
"""llmfw's own commands, with their short helps; a test compares these with the commands'."""


class PluginGroup(LazyGroup):
    """The top-level click group.

    Loads plugins when a plugin's command is run, and when the commands are listed.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._has_plugin_commands = False
        self.own_commands = tuple(self.commands)
        """Names of llmfw's own commands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line. Refuses arguments and LLMFW_* environment variables that are not UTF-8."""
        for place, argument in enumerate(args):
            if not _is_utf8(argument):
                before = args[place - 1] if place else ""
                ctx.fail(
                    f"argument {place + 1}{_shown_bytes(argument, before)} is not UTF-8; give it in UTF-8"
                )
        for name, value in os.environ.items():
            if name.startswith("LLMFW_") and not _is_utf8(name + value):
                ctx.fail(
                    f"{ascii(name)[1:-1]}{_shown_bytes(value, name)} in the environment is not UTF-8; give it in UTF-8"
                )
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        self._add_plugin_commands(ctx)
        return super().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands:
            self._add_plugin_commands(ctx)
            spellings = [name for name in self.commands if name.endswith(f"/{cmd_name}")]
            if spellings and cmd_name not in self.commands:
                ctx.fail(
                    f"command {cmd_name!r} is brought by several plugins; choose one of: {', '.join(spellings)}"
                )
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is meant. For another server's command, the error names a substitute."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            found = advice_on(args[0])
            if found is None:
                raise
            raise click.UsageError(found, ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and show an LLMFWError as one line.

        Exits with the error's exit code (1 if it has none), or with 130 after Ctrl-C.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("\nStopped by Ctrl-C", err=True)
            ctx.exit(INTERRUPTED)
        except LLMFWError as error:
            if ctx.meta.get("llmfw.debug"):
                import traceback

                traceback.print_exc()
            raise _OneLineError(error) from error
        except (click.ClickException, click.exceptions.Exit, click.Abort, SystemExit):
            raise
        except BaseException as error:  # a plugin's command may raise anything
            command = ctx.invoked_subcommand
            if command is None or command in self.own_commands or shows_tracebacks():
                raise
            raise _OneLineError(ComponentError(_failure_of(command, error))) from error

    def _add_plugin_commands(self, ctx: click.Context) -> None:
        if not self._has_plugin_commands:
            self._has_plugin_commands = True
            from .settings.loaded_plugins import plugins_of  # imports the search for plugins

            plugins_of(ctx).add_commands(self)


def shows_tracebacks() -> bool:
    """Return whether LLMFW_STRICT_PLUGINS is set, so that authors see the tracebacks of their plugins."""
    return os.environ.get("LLMFW_STRICT_PLUGINS", "0") not in ("", "0")


def _failure_of(command: str, error: BaseException) -> str:
    text = "".join(char if char.isprintable() else " " for char in str(error))
    return (
        f"command {command!r}, which a plugin brings, failed: {type(error).__name__}: {text:.500}; "
        "LLMFW_STRICT_PLUGINS=1 shows the traceback"
    )


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown_bytes(text: str, name: str) -> str:
    """Return a text that is not UTF-8 as part of an error message; "" if the text may be an API key.

    Args:
        name: name of the option or environment variable whose value is `text`.
    """
    shown = repr(os.fsencode(text))
    if "key" in (name + text).lower():
        return ""
    return f", {shown if len(shown) <= 200 else shown[:200] + '…'},"


class _OneLineError(click.ClickException):
    """An LLMFWError as click shows it: on one line, and with the error's exit code (1 if it has none)."""

    def __init__(self, error: LLMFWError) -> None:
        super().__init__(" ".join(str(error).split()))
        self.exit_code = getattr(error, "exit_code", 1)  # type: ignore[misc]


def build_cli() -> click.Group:
    """Return a new command line. It loads the commands of plugins when they are needed."""
    group = PluginGroup(
        "llmfw",
        help="A plugin-first LLM serving engine with an OpenAI-compatible API.",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
        commands=COMMANDS,
    )
    # Without a version here, click looks it up when it is asked for.
    return click.version_option(package_name=DISTRIBUTION, prog_name="llmfw")(group)


def main() -> None:
    """Run the command line; the console script's entry point."""
    build_cli()(prog_name="llmfw")
