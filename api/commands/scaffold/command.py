"""`llmfw plugin new`: writes a package with a working plugin and its tests as a starting point."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llmfw.api.settings.loaded_plugins import plugins_of
from llmfw.core import ConfigError, Plugins
from llmfw.core.plugin.hookspecs import HOOK_NAMES

if TYPE_CHECKING:
    from .kinds import Kind
    from .package import PackageNames


class KindName(click.Choice[str]):
    """Option type for a kind. Accepts hyphens for underscores."""

    def __init__(self) -> None:
        super().__init__([*HOOK_NAMES, "command", "route"])

    def normalize_choice(self, choice: object, ctx: click.Context | None) -> str:
        return str(choice).replace("-", "_")


@click.group("plugin")
def plugin_group() -> None:
    """Write a plugin of your own."""


@plugin_group.command("new")
@click.argument("name")
@click.option(
    "--kind", "kind_name", type=KindName(), required=True, help="Kind of component that the plugin brings."
)
@click.option(
    "--path",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    show_default="this one",
    help="Folder in which to create the package's folder.",
)
@click.pass_context
def new_command(ctx: click.Context, name: str, kind_name: str, path: Path) -> None:
    """Write the package llmfw-NAME: a simple plugin that works, its tests, a README and a CI file.

    Users choose the component by NAME. Existing files are never overwritten.
    """
    import shlex

    from .kinds import KINDS
    from .package import PackageNames, write_package

    kind, names = KINDS[kind_name], PackageNames(name)
    note = _check_free(kind, names, ctx)
    folder = write_package(kind, names, path)
    click.echo(
        f"{folder} holds a {kind.spoken} that works. Yours goes into {names.module}/{kind.name}.py. Next:\n"
    )
    click.echo(f"  cd {shlex.quote(os.fspath(folder))}")
    click.echo("  pip install -e '.[test]' && pytest")
    click.echo(f"  {kind.use.format(name=names.registered(kind))}")
    if note:
        click.echo(f"\n{note}")


def _check_free(kind: Kind, names: PackageNames, ctx: click.Context) -> str | None:
    """Return a note if another component has this name; raise ConfigError if that prevents loading."""
    plugins = plugins_of(ctx)
    others = [(loaded.name, loaded.distribution) for loaded in plugins.loaded]
    others += [(broken.name, broken.distribution) for broken in plugins.broken]
    for plugin, package in others:
        if plugin == names.component and package != names.distribution:
            raise ConfigError(
                f"the package {package} brings a plugin {plugin!r} already, and two of one name cannot be loaded; "
                "choose another name"
            )
    if kind.name == "command" and names.component in _own_commands(ctx):
        raise ConfigError(f"llmfw has a command {names.component!r} of its own; choose another name")
    return _same_name(plugins, kind, names)


def _own_commands(ctx: click.Context) -> list[str]:
    root = ctx.find_root().command
    return list(root.commands) if isinstance(root, click.Group) else []


def _same_name(plugins: Plugins, kind: Kind, names: PackageNames) -> str | None:
    entries = plugins.registry.entries(kind.name) if kind.is_component else []
    for entry in entries:
        if entry.name == names.registered(kind) and entry.distribution != names.distribution:
            return (
                f"Note: {entry.full_name} is a {kind.spoken} of that name, too. Users who have both have to write "
                f"{names.component}/{names.registered(kind)} for yours."
            )
    return None
