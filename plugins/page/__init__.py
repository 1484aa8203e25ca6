"""The page that browsers get at `/`: chats with the model, the engine at work, and batches; and `llmfw top`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmfw.core import LazyCommand, RegisterRoute, hookimpl

if TYPE_CHECKING:
    import click


@hookimpl
def register_routes(register: RegisterRoute) -> None:
    register("llmfw.plugins.page.routes:Page")
    register("llmfw.plugins.page.routes:frames")


@hookimpl
def register_commands(cli: click.Group) -> None:
    cli.add_command(
        LazyCommand("top", "llmfw.plugins.page.top.command:top", "Show what a running server computes, live.")
    )
