"""The names of component options, "kind.key", before any component is imported."""

from __future__ import annotations

from collections.abc import Mapping

from llmfw.core.base.config import OptionValue
from llmfw.core.base.errors import ConfigError

from .kinds import INTERFACES, import_path, spoken


def check_option_keys(options: Mapping[str, OptionValue]) -> None:
    """Raise ConfigError for an option that is not named "kind.key", or whose kind has no options.

    `Entry.build_options` checks later whether the chosen component has the option.
    """
    kinds = kinds_with_options() if options else []
    for key in options:
        kind, dot, name = key.partition(".")
        if not (dot and name and kind in kinds):
            names = ", ".join(f"{kind}.…" for kind in kinds)
            none = (
                f"components of the kind {kind!r} have none; "
                if kind in INTERFACES and kind not in kinds
                else ""
            )
            raise ConfigError(f"there is no component option {key!r}; {none}options are named {names}")


def refuse_options(kind: str, options: Mapping[str, OptionValue], why: str) -> None:
    """Raise ConfigError if options are given for a kind of which no component is in use.

    Args:
        why: end of the error message, which says why no component is in use and how to choose one.
    """
    for key in options:
        of, _, name = key.partition(".")
        if of == kind:
            raise ConfigError(f"{spoken(kind)} option {name!r} is given, but {why}")


def kinds_with_options() -> list[str]:
    """Return the kinds of components that have options."""
    return [kind for kind, path in INTERFACES.items() if hasattr(import_path(path), "Options")]
