"""`llmfw bench`: drive any OpenAI-compatible server with fixed workloads and measure it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmfw.core import hookimpl

if TYPE_CHECKING:
    import click


@hookimpl
def register_commands(cli: click.Group) -> None:
    """Add `llmfw bench`. Its options need click alone; the HTTP client is imported when the command runs."""
    from .command import bench

    cli.add_command(bench)
