"""`llmfw bench`: drive any OpenAI-compatible server with fixed workloads and measure it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmfw.core import LazyCommand, hookimpl

if TYPE_CHECKING:
    import click


@hookimpl
def register_commands(cli: click.Group) -> None:
    """Add `llmfw bench`, which is imported when it is asked for."""
    cli.add_command(
        LazyCommand(
            "bench",
            "llmfw.plugins.bench.command:bench",
            "Measure an OpenAI-compatible server under a fixed workload.",
        )
    )
