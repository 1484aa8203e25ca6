"""`--help-component KIND.NAME`: prints a component's summary, its options, and whether it can be used here.

Imports the component.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import click

from llmfw.core.base.errors import ComponentError, ConfigError
from llmfw.core.base.suggestion import did_you_mean
from llmfw.core.plugin.containment import raise_if_process_ends
from llmfw.core.plugin.kinds import INTERFACES
from llmfw.core.plugin.registry import Entry, reason_of

from .component_options import table_of, variable_of
from .component_source import declared_options
from .loaded_plugins import plugins_of
from .option_fields import OptionField, fields_of

WIDTH = 100


def show_component(ctx: click.Context, param: click.Parameter, wanted: str) -> None:
    """Callback of `--help-component`: print the help of the named components, and end the command."""
    if ctx.resilient_parsing:
        return
    entries = _entries(ctx, param, wanted)
    click.echo("\n\n".join("\n".join(component_help(entry)) for entry in entries))
    ctx.exit()


def _entries(ctx: click.Context, param: click.Parameter, wanted: str) -> list[Entry]:
    kind, _, name = wanted.partition(".")
    kind = kind.replace("-", "_")
    if kind not in INTERFACES:
        hint = did_you_mean(kind, INTERFACES)
        raise click.BadParameter(
            f"there is no kind of component {kind!r}; known: {', '.join(INTERFACES)}{hint}", ctx, param
        )
    registry = plugins_of(ctx).registry
    if not name:
        if not registry.entries(kind):
            raise click.BadParameter(f"no component of kind {kind!r} is registered", ctx, param)
        return registry.entries(kind)
    try:
        return [registry.find(kind, name)]
    except ConfigError as error:
        raise click.BadParameter(str(error), ctx, param) from error


def component_help(entry: Entry) -> Iterator[str]:
    """Yield the lines of a component's help."""
    yield f"{entry.kind}.{entry.name}: {entry.summary}" if entry.summary else f"{entry.kind}.{entry.name}"
    yield f"  plugin {entry.plugin}, of {entry.distribution} {entry.version}".rstrip() + f"; {entry.path}"
    if entry.needs:
        lacking = entry.lacking()
        yield f"  {lacking}" if lacking else f"  needs {', '.join(entry.needs)}: installed"
    options, trouble = options_of(entry)
    if trouble:
        yield f"  {trouble}"
    if options is None:
        return
    if not options:
        yield "  It has no options."
        return
    yield "\nOptions:"
    for option in options:
        yield from _option_lines(option)
    yield from _ways_to_set(entry, options[0])


def options_of(entry: Entry) -> tuple[list[OptionField] | None, str | None]:
    """Return a component's options, and a message if they are incomplete or the component cannot be used.

    If the component cannot be imported, the options are read from its source. If the source is not found
    either, the options are None.
    """
    import msgspec

    try:
        struct = getattr(entry.load(checked=False), "Options", None)
    except ComponentError as error:
        declared = declared_options(entry.path)
        why = None if entry.missing() else f"It cannot be used: {' '.join(str(error).split())}"
        if declared is None:
            return None, why or "Its options can be listed when it is installed."
        return declared, why
    if struct is None:
        return [], None
    if not (isinstance(struct, type) and issubclass(struct, msgspec.Struct)):
        return None, "Its Options are not a msgspec Struct: it cannot be used."
    try:
        return fields_of(struct), None
    except BaseException as error:  # noqa: BLE001 - a plugin's types may raise anything
        raise_if_process_ends(error)
        return None, f"Its Options cannot be read: {reason_of(error)}: it cannot be used."


def _option_lines(option: OptionField) -> Iterator[str]:
    default = f"default: {option.default}" if option.default is not None else "has to be given"
    yield f"  {option.name}  ({option.type}; {default})"
    if option.fault is not None:
        yield f"      Its default is not valid, a defect of the component: {option.fault}"
    if option.about:
        yield textwrap.fill(option.about, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)


def _ways_to_set(entry: Entry, option: OptionField) -> Iterator[str]:
    """Yield lines that show the ways to set an option of a component, with `option` as the example."""
    key = f"{entry.option_prefix}.{option.name}"
    text = option.example if option.example is not None else "VALUE"
    written = option.default if option.example is not None else '"VALUE"'
    yield "\nSet one of them by any of these, of which the first that is there counts:"
    yield f"  -o {key}={text}"
    yield f"  {variable_of(key)}={text}  in the environment"
    yield f"  {table_of(entry.option_prefix)}  in the file of --config"
    yield f"  {option.name} = {written}"
