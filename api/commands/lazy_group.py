"""A click group whose commands are imported when they run, not when they are listed."""

from __future__ import annotations

import click

from llmfw.core.interfaces.lazy_command import LazyCommand


class LazyGroup(click.Group):
    """A click group that imports the real command behind a `LazyCommand` when the command is used."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        return found.command() if isinstance(found, LazyCommand) else found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands as click does, without importing the commands."""
        names = [name for name in self.list_commands(ctx) if not self.commands[name].hidden]
        if names:
            limit = formatter.width - 6 - max(map(len, names))
            with formatter.section("Commands"):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(limit)) for name in names])
