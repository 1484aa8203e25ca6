"""`llmfw plugins`: lists components, what they lack, name conflicts, and broken plugins.

Imports no component; `llmfw plugins doctor` imports all of them.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict
from typing import Any

import click

from llmfw.api.settings.component_source import declared_options, kinds_with_options
from llmfw.api.settings.loaded_plugins import plugins_of
from llmfw.core.interfaces.lazy_command import LazyCommand
from llmfw.core.plugin.plugins import Plugins
from llmfw.core.plugin.registry import Entry
from llmfw.core.terminal.tables import Column, print_table

from .lazy_group import LazyGroup


@click.group("plugins", cls=LazyGroup, invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def plugins_group(ctx: click.Context, as_json: bool) -> None:
    """List every registered component, and the plugins that did not load."""
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
    """Return all components, commands and routes, and the broken plugins, as JSON-compatible data.

    Args:
        own_commands: names of llmfw's own commands.

    Returns:
        A dict with the lists "components" and "broken". Items of "broken" have name, package, version and
        reason. Items of "components" have kind, name, plugin, package, version, path, summary, rank, needs,
        lacks, devices (types of the devices that the component is for; empty: any), and:

        - install: command that installs what the component lacks; None if llmfw does not know one.
        - options: names of the component's options; None if only an import could tell them.
        - choose: name by which users choose the component: "name", or "plugin/name" if other components have
          the same name.
        - shadowed_by: the other components of the same name.
    """
    components = [_described(component) for plugin in plugins.loaded for component in plugin.components]
    blank: dict[str, Any] = {"path": None, "summary": "", "rank": 0, "needs": [], "lacks": [], "devices": []}
    blank |= {"install": None, "options": []}
    for plugin in plugins.loaded:
        about = {"plugin": plugin.name, "distribution": plugin.distribution, "version": plugin.version}
        for command in plugin.commands:
            components.append(
                blank
                | about
                | {"kind": "command", "name": command.name, "summary": command.get_short_help_str()}
            )
        components.extend(
            blank | about | {"kind": "route", "name": path, "path": path} for path in plugin.routes
        )
    _find_shadows(components, own_commands)
    components.sort(key=lambda component: (component["kind"], component["name"], component["plugin"]))
    return {
        "components": [_with_package_key(component) for component in components],
        "broken": [_with_package_key(asdict(broken)) for broken in plugins.broken],
    }


def _described(component: Entry) -> dict[str, Any]:
    lacks = component.missing()
    return asdict(component) | {
        "needs": list(component.needs),
        "devices": list(component.devices),
        "lacks": lacks,
        "install": component.install_hint() if lacks else None,
        "options": _names_of_options(component),
    }


def _names_of_options(component: Entry) -> list[str] | None:
    if component.kind not in kinds_with_options():
        return []
    options = declared_options(component.path)
    return None if options is None else [option.name for option in options]


def _find_shadows(components: list[dict[str, Any]], own_commands: Collection[str]) -> None:
    """Set each component's "choose" and "shadowed_by" (see `describe`)."""
    named: dict[tuple[str, str], list[str]] = {}
    for component in components:
        named.setdefault((component["kind"], component["name"]), []).append(
            f"{component['plugin']}/{component['name']}"
        )
    for component in components:
        full_name = f"{component['plugin']}/{component['name']}"
        others = [name for name in named[component["kind"], component["name"]] if name != full_name]
        if component["kind"] == "command" and component["name"] in own_commands:
            others.append("llmfw")
        component["shadowed_by"] = others
        component["choose"] = full_name if others else component["name"]


def _with_package_key(record: dict[str, Any]) -> dict[str, Any]:
    """Return the record with its key "distribution" renamed to "package"."""
    return {("package" if key == "distribution" else key): value for key, value in record.items()}


def _print_table(found: dict[str, list[dict[str, Any]]]) -> None:
    """Print one row for each component, then one for each plugin that did not load.

    A narrow terminal shows only kind, name and summary. For a plugin that did not load, the summary is the
    reason.
    """
    columns = [
        Column("kind"),
        Column("name", wraps=True),  # for a route, its import path
        Column("plugin", drop=1),
        Column("package", drop=3),
        Column("needs", drop=4),
        Column("lacks", drop=2, wraps=True, style="red"),
        Column("options", drop=5, wraps=True),
        Column("summary", wraps=True),
    ]
    if any(component["shadowed_by"] for component in found["components"]):
        columns.insert(2, Column("shadowed by", style="red"))
    cells = [*map(_cells, found["components"]), *map(_cells_of_broken, found["broken"])]
    print_table(columns, [[row.get(column.title) for column in columns] for row in cells])


def _cells(component: dict[str, Any]) -> dict[str, str]:
    """Return the cells of a component's row: column → text."""
    lacks = ", ".join(component["lacks"])
    return {
        "kind": component["kind"],
        "name": component["choose"],
        "plugin": component["plugin"],
        "package": f"{component['package']} {component['version']}".strip(),
        "needs": ", ".join(component["needs"]),
        "lacks": f"{lacks}: {component['install']}" if component["install"] else lacks,
        "options": "not known" if component["options"] is None else ", ".join(component["options"]),
        "summary": component["summary"],
        "shadowed by": ", ".join(component["shadowed_by"]),
    }


def _cells_of_broken(plugin: dict[str, Any]) -> dict[str, str]:
    package = f"{plugin['package']} {plugin['version']}".strip()
    return {
        "kind": "plugin",
        "name": plugin["name"],
        "plugin": plugin["name"],
        "package": package,
        "summary": f"did not load: {plugin['reason']}",
    }


plugins_group.add_command(
    LazyCommand(
        "doctor",
        "llmfw.api.commands.doctor.command:doctor_command",
        "Import every component, and hold it against its interface.",
    )
)
