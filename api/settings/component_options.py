"""Options of components, from the command line (`-o`), the environment and a config file, in this order.

The environment variable of `attention.workspace_mb` is LLMFW_ATTENTION__WORKSPACE_MB, and that of
`observer.request-log.path` is LLMFW_OBSERVER__REQUEST_LOG__PATH. This module only checks
that components of the kind have options. The names and types of options are checked when the component is
built.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import click

from llmfw.core.base.errors import ConfigError, LLMFWError
from llmfw.core.base.setting_types import OptionValue
from llmfw.core.plugin.kinds import SEVERAL, spoken
from llmfw.core.plugin.option_keys import check_option_keys, merged, unified

from .option import ENVIRONMENT

OPTIONS = "llmfw.component_options"
"""Key in the context's `meta` for the list of component options.

`config_file` stores the options of the config file there; `collect` replaces them with all options.
"""


@dataclass(frozen=True, slots=True)
class ComponentOption:
    """One option of a component.

    Attributes:
        key: "kind.key", such as "attention.workspace_mb", or "kind.name.key".
        source: environment variable or config file that sets the option; None: the command line.
    """

    key: str
    value: OptionValue
    source: str | None = None


class Assignment(click.ParamType[tuple[str, str], str | tuple[str, str]]):
    """Option type for "kind.key=value"."""

    name = "kind.key=value"

    def convert(
        self, value: str | tuple[str, str], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, equals, text = value.partition("=")
        if not equals:
            has_output = ctx is not None and any("--output" in other.opts for other in ctx.command.params)
            hint = "; a file for the results is given by --output" if has_output else ""
            self.fail(f"{value!r} has no '='; write kind.key=value{hint}", param, ctx)
        return key.strip(), text


def collect(
    ctx: click.Context, param: click.Parameter, pairs: tuple[tuple[str, str], ...]
) -> dict[str, OptionValue]:
    """Return all component options as a mapping; callback of the repeatable option "kind.key=value".

    The command line takes precedence over the environment, and the environment over the config file.
    """
    given: dict[str, ComponentOption] = {}
    for key, text in pairs:
        if (before := given.get(unified(key))) is not None:
            raise click.BadParameter(f"{key!r} is given twice: {before.value!r} and {text!r}", ctx, param)
        given[unified(key)] = check_keys(ComponentOption(key, text), ctx)
    options = (*ctx.meta.get(OPTIONS, ()), *_from_environment(ctx), *given.values())
    ctx.meta[OPTIONS] = list(merged(*({option.key: option} for option in options)).values())
    return {option.key: option.value for option in ctx.meta[OPTIONS]}


def check_keys(option: ComponentOption, ctx: click.Context, place: str | None = None) -> ComponentOption:
    """Return the option; raise BadParameter if components of its kind have no options."""
    try:
        check_option_keys({option.key: option.value})
    except ConfigError as error:
        raise click.BadParameter(str(error), ctx, param_hint=place) from error
    return option


def variable_of(key: str) -> str:
    """Return the environment variable of an option, "kind.key" or "kind.name.key"."""
    return ENVIRONMENT + key.replace(".", "__").replace("-", "_").upper()


def table_of(prefix: str) -> str:
    """Return the header of a config file's table for the options "prefix.key"."""
    kind, dot, name = prefix.partition(".")
    is_bare = re.fullmatch(r"[\w-]*", name, re.ASCII)
    return f"[options.{kind}{dot}{name if is_bare else json.dumps(name)}]"


def _from_environment(ctx: click.Context) -> Iterator[ComponentOption]:
    for variable, text in sorted(os.environ.items()):
        kind, underscores, name = variable.removeprefix(ENVIRONMENT).partition("__")
        if text and underscores and variable.startswith(ENVIRONMENT):
            key = f"{kind}.{name.replace('__', '.')}".lower()
            yield check_keys(ComponentOption(key, text, variable), ctx, variable)


@contextlib.contextmanager
def naming_sources(options: Iterable[ComponentOption]) -> Iterator[None]:
    """Add the sources of component options to an error in the block that names these options.

    Options from the command line are left out.
    """
    try:
        yield
    except LLMFWError as error:
        text = str(error)
        places = [
            f"{option.key} is set in {option.source}"
            for option in options
            if option.source is not None and _names(text, option.key)
        ]
        if places:
            error.args = (f"{text} ({'; '.join(places)})",)
        raise


def _names(text: str, key: str) -> bool:
    """Return whether an error names an option: its kind, its component if there may be several, and its key."""
    kind, _, rest = key.partition(".")
    component, _, name = rest.rpartition(".")
    plain = text.replace("-", "_")
    component = component.rpartition("/")[2].replace("-", "_")
    is_its = kind not in SEVERAL or f"'{component}'" in plain or f".{component}.{name}" in plain
    quoted = (f"'{name}'", f"$.{name}", f".{name}: ", f".{name} is ")
    return spoken(kind) in text and is_its and any(each in text for each in quoted)
