"""`llmfw bench`: drive any OpenAI-compatible server with fixed workloads and measure it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmfw.core import LazyCommand, hookimpl

if TYPE_CHECKING:
    import click


@hookimpl
def register_commands(cli: click.Group) -> None:
    """Add the command `llmfw bench`, whose module is imported only when the command is used."""
    cli.add_command(
        LazyCommand(
            "bench",
            "llmfw.plugins.bench.command:bench",
            "Measure an OpenAI-compatible server under a fixed workload.",
        )
    )
