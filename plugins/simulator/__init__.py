"""`llmfw simulate`: replay a trace through the real scheduler and prefix cache, with a cost model for a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmfw.core import hookimpl

if TYPE_CHECKING:
    import click


@hookimpl
def register_commands(cli: click.Group) -> None:
    """Add `llmfw simulate`. Its options need click alone; what does the work is imported when the command runs."""
    from .command import simulate

    cli.add_command(simulate)
