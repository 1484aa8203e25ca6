"""`llmfw plugins`: what is installed, what it lacks, and what is broken. Imports no part."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from llmfw.core.plugins import Plugins

from .params import plugins_of

if TYPE_CHECKING:
    from rich.table import Table


@click.command("plugins")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def plugins_command(ctx: click.Context, as_json: bool) -> None:
    """List every registered part, and the plugins that did not load."""
    plugins = plugins_of(ctx)
    if as_json:
        click.echo(json.dumps(describe(plugins), indent=2))
    else:
        _print_tables(describe(plugins))


def describe(plugins: Plugins) -> dict[str, list[dict[str, Any]]]:
    """Return all parts, commands and routes, and the broken plugins, as plain data.

    Returns:
        "parts": each with kind, name, plugin, package, version, path, summary, rank, needs, lacks;
        "broken": each with name, package, version, reason.
    """
    parts = [
        asdict(part) | {"needs": list(part.needs), "lacks": part.missing()}
        for plugin in plugins.loaded
        for part in plugin.parts
    ]
    blank: dict[str, Any] = {"path": None, "summary": "", "rank": 0, "needs": [], "lacks": []}
    for plugin in plugins.loaded:
        about = {"plugin": plugin.name, "distribution": plugin.distribution, "version": plugin.version}
        for command in plugin.commands:
            parts.append(
                blank
                | about
                | {"kind": "command", "name": command.name, "summary": command.get_short_help_str()}
            )
        parts.extend(blank | about | {"kind": "route", "name": path, "path": path} for path in plugin.routes)
    parts.sort(key=lambda part: (part["kind"], part["name"], part["plugin"]))
    return {
        "parts": [_renamed(part) for part in parts],
        "broken": [_renamed(asdict(broken)) for broken in plugins.broken],
    }


def _renamed(record: dict[str, Any]) -> dict[str, Any]:
    """Say "package", as users do, for what packaging calls a distribution."""
    return {("package" if key == "distribution" else key): value for key, value in record.items()}


def _print_tables(found: dict[str, list[dict[str, Any]]]) -> None:
    from rich.console import Console  # a third of this command's time: only where it is used

    console = Console()
    if not console.is_terminal:
        console = Console(width=240)  # a pipe has no width; do not cut what may be searched
    console.print(_table(found["parts"], "kind", "name", "plugin", "package", "needs", "lacks", "summary"))
    if found["broken"]:
        console.print("did not load:", style="bold red")
        console.print(_table(found["broken"], "name", "package", "reason"))


def _table(records: list[dict[str, Any]], *columns: str) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for record in records:
        cells = record | {"package": f"{record['package']} {record['version']}".strip()}
        texts = [
            ", ".join(cells[column]) if isinstance(cells[column], list) else cells[column]
            for column in columns
        ]
        table.add_row(
            *(
                Text(text, style="red" if column == "lacks" else "")
                for column, text in zip(columns, texts, strict=True)
            )
        )
    return table
