"""The options of `llmfw top`.

Imports only click; the modules that do the work are imported when the command runs.
"""

from __future__ import annotations

from typing import Any

import click

from llmfw.core.terminal.finite_range import FiniteRange


@click.command()
@click.option(
    "--url",
    "--base-url",
    "url",
    default="http://127.0.0.1:30000",
    show_default=True,
    metavar="URL",
    help="URL of the server; http:// may be left out.",
)
@click.option(
    "--api-key",
    envvar=("LLMFW_ADMIN_API_KEY", "OPENAI_API_KEY"),
    metavar="KEY",
    help="API key, sent as a bearer token: the server's --admin-api-key if it has one.",
)
@click.option(
    "--interval",
    type=FiniteRange(min=0.1),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two pictures, over which rates are computed.",
)
@click.option("--once", is_flag=True, help="Print one picture and end, as without a terminal.")
def top(**settings: Any) -> None:
    """Show what a running server computes: its load, its caches, and its requests with the reasons why they wait.

    Ends with Ctrl-C. The server needs the plugin `page`, whose stream this reads.
    """
    from .session import watch

    watch(**settings)
