"""`llmfw plugin new` and `add`: write working components and their tests as a starting point."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from llmfw.api.settings.loaded_plugins import plugins_of
from llmfw.core import ConfigError, Plugins
from llmfw.core.plugin.hookspecs import HOOK_NAMES

if TYPE_CHECKING:
    from .kinds import Kind
    from .package import PackageNames


CommandT = TypeVar("CommandT", bound=Callable[..., Any])


class KindName(click.Choice[str]):
    """Option type for a kind. Accepts hyphens for underscores."""

    def __init__(self) -> None:
        super().__init__([*HOOK_NAMES, "command", "route"])

    def normalize_choice(self, choice: object, ctx: click.Context | None) -> str:
        return str(choice).replace("-", "_")


_kinds = click.option(
    "--kind",
    "kind_names",
    type=KindName(),
    required=True,
    multiple=True,
    help="Kind of component that the package brings. May be given several times.",
)


def _folder(about: str) -> Callable[[CommandT], CommandT]:
    """Return the decorator for the option `--path`."""
    return click.option(
        "--path",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path(),
        show_default="this one",
        help=about,
    )


@click.group("plugin")
def plugin_group() -> None:
    """Write a plugin of your own."""


@plugin_group.command("new")
@click.argument("name")
@_kinds
@_folder("Folder in which to create the package's folder.")
@click.pass_context
def new_command(ctx: click.Context, name: str, kind_names: tuple[str, ...], path: Path) -> None:
    """Write the package llmfw-NAME: a simple plugin that works, its tests, a README and a CI file.

    Users choose the component by NAME. With several kinds, the package has one component of each, all called
    NAME. A policy or a logits processor reads the request field of the same package, if there is one. Existing
    files are never overwritten.
    """
    from .kinds import in_one_package
    from .package import PackageNames, write_package

    kinds, names = in_one_package(kind_names), PackageNames(name)
    _check_plugin_name(names, ctx)
    notes = [_check_component_name(kind, names, ctx) for kind in kinds]
    folder = write_package(kinds, names, path)
    _tell_next(folder, kinds, names, notes)


@plugin_group.command("add")
@_kinds
@_folder("Folder of the package, with its pyproject.toml.")
@click.pass_context
def add_command(ctx: click.Context, kind_names: tuple[str, ...], path: Path) -> None:
    """Add a component of another kind, which works, and its tests to a package.

    Adds the hook to the module that the package's entry point names. Other existing files stay as they are.
    """
    from .added import ExistingPackage
    from .kinds import KINDS

    kinds, package = [KINDS[kind] for kind in dict.fromkeys(kind_names)], ExistingPackage(path)
    notes = [_check_component_name(kind, package.names, ctx) for kind in kinds]
    package.add(kinds)
    _tell_next(path, kinds, package.names, notes)


def _tell_next(folder: Path, kinds: Sequence[Kind], names: PackageNames, notes: Sequence[str | None]) -> None:
    """Print what has been written, and the commands that try it."""
    import shlex

    for kind in kinds:
        click.echo(
            f"{folder.resolve().name} holds {kind.with_article} that works. Yours goes into {names.module}/{kind.name}.py."
        )
    click.echo("Next:\n")
    if folder.resolve() != Path.cwd():
        click.echo(f"  cd {shlex.quote(os.fspath(folder))}")
    click.echo("  pip install -e '.[test]' && pytest")
    for kind in kinds:
        click.echo(f"  {kind.use.format(name=names.registered(kind))}")
    for note in filter(None, notes):
        click.echo(f"\n{note}")


def _check_plugin_name(names: PackageNames, ctx: click.Context) -> None:
    """Raise ConfigError if another package's plugin has this name."""
    plugins = plugins_of(ctx)
    others = [(loaded.name, loaded.distribution) for loaded in plugins.loaded]
    others += [(broken.name, broken.distribution) for broken in plugins.broken]
    for plugin, package in others:
        if plugin == names.component and package != names.distribution:
            raise ConfigError(
                f"the package {package} brings a plugin {plugin!r} already, and two of one name cannot be loaded; "
                "choose another name"
            )


def _check_component_name(kind: Kind, names: PackageNames, ctx: click.Context) -> str | None:
    """Return a note if another component has this name; raise ConfigError if a command must not have it."""
    if kind.name == "command" and names.component in _own_commands(ctx):
        raise ConfigError(f"llmfw has a command {names.component!r} of its own; choose another name")
    return _same_name(plugins_of(ctx), kind, names)


def _own_commands(ctx: click.Context) -> list[str]:
    root = ctx.find_root().command
    return list(root.commands) if isinstance(root, click.Group) else []


def _same_name(plugins: Plugins, kind: Kind, names: PackageNames) -> str | None:
    entries = plugins.registry.entries(kind.name) if kind.is_component else []
    for entry in entries:
        if entry.name == names.registered(kind) and entry.distribution != names.distribution:
            return (
                f"Note: the {kind.spoken} {entry.full_name} has that name, too. If both are installed, write "
                f"{names.component}/{names.registered(kind)} for yours."
            )
    return None
