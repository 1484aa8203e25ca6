"""Commands whose modules are imported only when they are used, so that other commands start faster."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from llmfw.core.base.errors import PluginError


class LazyCommand(click.Command):
    """Placeholder for a command until the command is run, or its help is requested.

    Args:
        name: name of the command.
        path: import path of the command itself, "package.module:attribute".
        summary: one line for lists of commands, equal to the command's own short help.
    """

    def __init__(self, name: str, path: str, summary: str) -> None:
        super().__init__(name, short_help=summary)
        self._path = path

    def command(self) -> click.Command:
        """Import the command, and return it.

        Raises:
            PluginError: the command cannot be imported.
        """
        module, _, attribute = self._path.partition(":")
        try:
            found: click.Command = getattr(import_module(module), attribute)
        except Exception as error:  # any exception of a plugin's module is the cause to report
            cause = f"{type(error).__name__}: {error}"
            raise PluginError(f"command {self.name!r} ({self._path}) cannot be imported: {cause}") from error
        return found

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Import the command and return its context, so that click runs the imported command."""
        return self.command().make_context(info_name, args, parent, **extra)
