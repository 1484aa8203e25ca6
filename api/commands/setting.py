"""One option of the command line for one field of the config structs, with the field's own default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import msgspec

from llmfw.core.config import EngineConfig, ServerConfig

Command = Callable[..., Any]


def _defaults() -> dict[str, Any]:
    fields = (*msgspec.structs.fields(ServerConfig), *msgspec.structs.fields(EngineConfig))
    return {field.name: field.default for field in fields if field.default is not msgspec.NODEFAULT}


DEFAULTS = _defaults()
"""Of the structs' fields, those that have one."""


def setting(
    *names: str, field: str, type: Any, help: str, unset: str = "by device", **kwargs: Any
) -> Callable[[Command], Command]:
    """Return an option that fills a field of the config structs.

    Args:
        names: of the option.
        field: its default is the option's.
        unset: what happens without the option, in words, where the field's default is None.
    """
    default = DEFAULTS.get(field)
    if default is None:
        help = f"{help} Default: {unset}."
    shown = default is not None
    return click.option(*names, field, type=type, default=default, show_default=shown, help=help, **kwargs)


def positive() -> click.IntRange:
    """Return the type of a whole number from 1."""
    return click.IntRange(min=1)
