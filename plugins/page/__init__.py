"""The web page at `/`, with chats, a live view of the engine, and batches; and the command `llmfw top`."""

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
