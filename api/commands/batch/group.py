"""The group `llmfw batch`. Imports its commands on first use, so that other commands start faster."""

from __future__ import annotations

import click


class BatchGroup(click.Group):
    """A click group of the commands in this folder, which it imports on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        self._import_commands()
        return super().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        self._import_commands()
        return super().get_command(ctx, cmd_name)

    def _import_commands(self) -> None:
        if self.commands:
            return
        from .results import results_command
        from .run import run_command
        from .status import cancel_command, list_command, status_command
        from .submit import submit_command

        own = (submit_command, status_command, results_command, cancel_command, list_command, run_command)
        for command in own:
            self.add_command(command)


batch_group = BatchGroup("batch", help="Run files of requests, in a running server or without one.")
