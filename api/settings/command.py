"""A command with settings, whose help has headings, and whose errors explain other servers' options."""

from __future__ import annotations

from typing import Any

import click

from .environment import warn_of_unknown
from .other_servers_flags import advice, nearest


class SettingsCommand(click.Command):
    """A command whose options are `SettingOption`s."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line. For an option of another server, the error says what to use here."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            names = [error.option_name]
            if not error.option_name.startswith("--"):  # for -ngl, click reports only one letter
                letter = error.option_name[1]
                names = [arg for arg in given if arg[:1] == "-" != arg[1:2] and letter in arg] + names
            if found := next(filter(None, map(advice, names)), None):
                raise click.UsageError(found, ctx) from error
            raise _unknown(error, self, ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, after a warning of unknown environment variables."""
        warn_of_unknown(ctx)
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under the headings of their settings."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                sections.setdefault(getattr(param, "group", "") or "Options", []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def _unknown(error: click.NoSuchOption, command: click.Command, ctx: click.Context) -> click.UsageError:
    """Return the error for an unknown option, with a suggestion.

    click's own suggestion is not used, because it may be an option that does the opposite.
    """
    name = error.option_name
    own = [each for param in command.get_params(ctx) for each in (*param.opts, *param.secondary_opts)]
    near = nearest(name, own)
    if near is None:
        return click.NoSuchOption(name, ctx=ctx)
    if (found := advice(near)) is not None and near not in own:
        return click.UsageError(f"No such option {name!r}. Did you mean {near}? {found}", ctx)
    return click.NoSuchOption(name, possibilities=[near], ctx=ctx)
