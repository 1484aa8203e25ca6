"""`llmfw simulate`: replays a trace with the real scheduler and prefix cache, and a cost model of steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmfw.core import LazyCommand, hookimpl

if TYPE_CHECKING:
    import click


@hookimpl
def register_commands(cli: click.Group) -> None:
    """Add the command `llmfw simulate`, whose module is imported only when the command is used."""
    cli.add_command(
        LazyCommand(
            "simulate",
            "llmfw.plugins.simulator.command:simulate",
            "Replay a trace of requests without a model, to judge a policy.",
        )
    )
