"""`llmfw pull` and `llmfw models`: download models from the hub into the local cache, and list the cache.

`llmfw serve` loads models from this cache. The adapter sources `folder` and `hub-cache` find adapters by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmfw.core import LazyCommand, Register, hookimpl

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


@hookimpl
def register_adapter_sources(register: Register) -> None:
    """Register the adapter sources."""
    register(
        "folder",
        "llmfw.plugins.hub.folder_adapters:FolderAdapters",
        summary="adapters in the folders below adapter_source.path, by their names",
    )
    register(
        "hub-cache",
        "llmfw.plugins.hub.cached_adapters:CachedAdapters",
        summary="adapters in the hub's local cache, by their hub ids; downloads nothing",
        needs=("huggingface_hub",),
    )
