"""`llmfw plugins`: installed parts, their missing needs, name conflicts, and broken plugins. Imports no part.

`llmfw plugins doctor` imports all of them.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict
from typing import Any

import click

from llmfw.api.settings.loaded_plugins import plugins_of
from llmfw.api.settings.part_source import declared_options, kinds_with_options
from llmfw.core.interfaces.lazy_command import LazyCommand
from llmfw.core.plugin.plugins import Plugins
from llmfw.core.plugin.registry import Entry
from llmfw.core.terminal.tables import Column, print_table

from .lazy_group import LazyGroup


@click.group("plugins", cls=LazyGroup, invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def plugins_group(ctx: click.Context, as_json: bool) -> None:
    """List every registered part, and the plugins that did not load."""
    if ctx.invoked_subcommand is not None:
        if as_json:
            raise click.UsageError(
                f"--json goes behind the command: llmfw plugins {ctx.invoked_subcommand} --json"
            )
        return
    own = getattr(ctx.find_root().command, "own_commands", ())
    found = describe(plugins_of(ctx), own)
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        _print_table(found)


def describe(plugins: Plugins, own_commands: Collection[str] = ()) -> dict[str, list[dict[str, Any]]]:
    """Return all parts, commands and routes, and the broken plugins, as plain data.

    Args:
        own_commands: names of llmfw's own commands.

    Returns:
        "parts": each with kind, name, plugin, package, version, path, summary, rank, needs, lacks; "install": the
        command that installs what it lacks, if one is known; "options": names of its options, None if they cannot be
        known without importing it; "choose": the text that chooses it, which is "plugin/name" if other parts have the
        same name; "shadowed_by": the other parts of the same name;
        "broken": each with name, package, version, reason.
    """
    parts = [_described(part) for plugin in plugins.loaded for part in plugin.parts]
    blank: dict[str, Any] = {"path": None, "summary": "", "rank": 0, "needs": [], "lacks": []}
    blank |= {"install": None, "options": []}
    for plugin in plugins.loaded:
        about = {"plugin": plugin.name, "distribution": plugin.distribution, "version": plugin.version}
        for command in plugin.commands:
            parts.append(
                blank
                | about
                | {"kind": "command", "name": command.name, "summary": command.get_short_help_str()}
            )
        parts.extend(blank | about | {"kind": "route", "name": path, "path": path} for path in plugin.routes)
    _find_shadows(parts, own_commands)
    parts.sort(key=lambda part: (part["kind"], part["name"], part["plugin"]))
    return {
        "parts": [_renamed(part) for part in parts],
        "broken": [_renamed(asdict(broken)) for broken in plugins.broken],
    }


def _described(part: Entry) -> dict[str, Any]:
    lacks = part.missing()
    return asdict(part) | {
        "needs": list(part.needs),
        "lacks": lacks,
        "install": part.install_hint() if lacks else None,
        "options": _names_of_options(part),
    }


def _names_of_options(part: Entry) -> list[str] | None:
    if part.kind not in kinds_with_options():
        return []
    options = declared_options(part.path)
    return None if options is None else [option.name for option in options]


def _find_shadows(parts: list[dict[str, Any]], own_commands: Collection[str]) -> None:
    """Set for each part the text that chooses it, and the other parts of its name."""
    named: dict[tuple[str, str], list[str]] = {}
    for part in parts:
        named.setdefault((part["kind"], part["name"]), []).append(f"{part['plugin']}/{part['name']}")
    for part in parts:
        full_name = f"{part['plugin']}/{part['name']}"
        others = [name for name in named[part["kind"], part["name"]] if name != full_name]
        if part["kind"] == "command" and part["name"] in own_commands:
            others.append("llmfw")
        part["shadowed_by"] = others
        part["choose"] = full_name if others else part["name"]


def _renamed(record: dict[str, Any]) -> dict[str, Any]:
    """Rename "distribution", the term of packaging, to "package", the term of users."""
    return {("package" if key == "distribution" else key): value for key, value in record.items()}


def _print_table(found: dict[str, list[dict[str, Any]]]) -> None:
    """Print one row for each part, and after them one for each plugin that did not load."""
    columns = [
        Column("kind"),
        Column("name"),
        Column("plugin"),
        Column("package", drop=2),
        Column("needs", drop=3),
        Column("lacks", wraps=True, style="red"),
        Column("options", drop=4, wraps=True),
        Column("summary", drop=1, wraps=True),
    ]
    if any(part["shadowed_by"] for part in found["parts"]):
        columns.insert(2, Column("shadowed by", style="red"))
    cells = [*map(_cells, found["parts"]), *map(_cells_of_broken, found["broken"])]
    print_table(columns, [[row.get(column.title) for column in columns] for row in cells])


def _cells(part: dict[str, Any]) -> dict[str, str]:
    """Return the texts of a part's row, by column."""
    lacks = ", ".join(part["lacks"])
    return {
        "kind": part["kind"],
        "name": part["choose"],
        "plugin": part["plugin"],
        "package": f"{part['package']} {part['version']}".strip(),
        "needs": ", ".join(part["needs"]),
        "lacks": f"{lacks}: {part['install']}" if part["install"] else lacks,
        "options": "not known" if part["options"] is None else ", ".join(part["options"]),
        "summary": part["summary"],
        "shadowed by": ", ".join(part["shadowed_by"]),
    }


def _cells_of_broken(plugin: dict[str, Any]) -> dict[str, str]:
    package = f"{plugin['package']} {plugin['version']}".strip()
    lacks = f"did not load: {plugin['reason']}"
    return {
        "kind": "plugin",
        "name": plugin["name"],
        "plugin": plugin["name"],
        "package": package,
        "lacks": lacks,
    }


plugins_group.add_command(
    LazyCommand(
        "doctor",
        "llmfw.api.commands.doctor.command:doctor_command",
        "Import every part, and hold it against its interface.",
    )
)
