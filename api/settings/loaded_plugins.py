"""The plugins for a command line, loaded when a value, help or completion first needs them."""

from __future__ import annotations

import click

from llmfw.core.base.errors import ConfigError
from llmfw.core.plugin.plugins import Plugins, load_plugins

_PLUGINS = "llmfw.plugins"


def plugins_of(ctx: click.Context) -> Plugins:
    """Return the plugins for this command line, loaded once, without those that `--no-plugin` names."""
    if _PLUGINS not in ctx.meta:
        ctx.meta[_PLUGINS] = _load()
    plugins: Plugins = ctx.meta[_PLUGINS]
    return plugins


def leave_out(ctx: click.Context, param: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    """Callback of `--no-plugin`: load all other plugins. The option must be eager, to run before others."""
    if names:
        try:
            ctx.meta[_PLUGINS] = _load(names)
        except ConfigError as error:
            raise click.BadParameter(str(error), ctx, param) from error
    return names


def _load(disabled: tuple[str, ...] = ()) -> Plugins:
    """Load the plugins; print a warning for each damaged package, and each plugin that slows down every command."""
    plugins = load_plugins(disabled)
    for warning in plugins.warnings:
        click.echo(f"warning: {warning}", err=True)
    for plugin in plugins.loaded:
        if plugin.slowness is not None:
            click.echo(f"warning: {plugin.slowness}", err=True)
    return plugins
