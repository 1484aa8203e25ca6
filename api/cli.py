"""The `llmfw` command: its own commands, those of plugins, and how errors are shown.

Light: it starts without torch, Litestar and ZeroMQ; commands import what they need when they run. The command
line is built anew by `build_cli`, because plugins add to it.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import click

from llmfw.core.errors import LLMFWError

from .commands.admin import cache_group, policy_group, trace_command
from .commands.batch.group import batch_group
from .commands.chat import chat_command
from .commands.check import check_command
from .commands.complete import complete_command
from .commands.params import plugins_of
from .commands.plan.command import plan_command
from .commands.plugins import plugins_command
from .commands.scaffold.command import plugin_group
from .commands.serve import serve_command


class PluginGroup(click.Group):
    """A group that loads plugins when a command is asked for that is not its own, or when it lists its commands."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._has_plugin_commands = False

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

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error meant for the user becomes one line, and exit code 1."""
        try:
            return super().invoke(ctx)
        except LLMFWError as error:
            if ctx.meta.get("llmfw.debug"):
                import traceback

                traceback.print_exc()
            raise click.ClickException(" ".join(str(error).split())) from error

    def _add_plugin_commands(self, ctx: click.Context) -> None:
        if not self._has_plugin_commands:
            self._has_plugin_commands = True
            plugins_of(ctx).add_commands(self)


def build_cli() -> click.Group:
    """Return the command line. Commands of plugins are added once it is asked for them."""
    group = PluginGroup(
        "llmfw",
        help="A plugin-first LLM serving engine with an OpenAI-compatible API.",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
        commands=[
            serve_command,
            chat_command,
            complete_command,
            batch_group,
            plan_command,
            plugins_command,
            plugin_group,
            check_command,
            cache_group,
            policy_group,
            trace_command,
        ],
    )
    return click.version_option(version("llmfw"), prog_name="llmfw")(group)


def main() -> None:
    """Run the command line; the console script's entry point."""
    build_cli()(prog_name="llmfw")
