"""`llmfw pull` and `llmfw models`: download models from the hub into the local cache, and list the cache.

`llmfw serve` loads models from this cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmfw.core import LazyCommand, hookimpl

if TYPE_CHECKING:
    import click


@hookimpl
def register_commands(cli: click.Group) -> None:
    """Add the commands, whose modules are imported only when they are used."""
    cli.add_command(
        LazyCommand(
            "pull", "llmfw.plugins.hub.pull_command:pull", "Download a model from the hub, and check it."
        )
    )
    cli.add_command(
        LazyCommand(
            "models", "llmfw.plugins.hub.models_command:models", "List the models in the local cache."
        )
    )
