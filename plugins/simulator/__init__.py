"""`llmfw simulate`: replay a trace through the real scheduler and prefix cache, with a cost model for a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmfw.core import LazyCommand, hookimpl

if TYPE_CHECKING:
    import click


@hookimpl
def register_commands(cli: click.Group) -> None:
    """Add `llmfw simulate`, which is imported when it is asked for."""
    cli.add_command(
        LazyCommand(
            "simulate",
            "llmfw.plugins.simulator.command:simulate",
            "Replay a trace of requests without a model, to judge a policy.",
        )
    )
