"""The names of component options, before any component is imported.

They are "kind.key", as in "policy.patience"; for a kind of which a server uses several components,
"kind.name.key", as in "observer.request-log.path". In the component's name, "_" stands for "-", too, because
names of environment variables have no "-".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

from llmfw.core.base.errors import ConfigError
from llmfw.core.base.setting_types import OptionValue

from .kinds import INTERFACES, SEVERAL, import_path, spoken

ValueT = TypeVar("ValueT")


def option_prefix(kind: str, name: str) -> str:
    """Return the prefix of the names of a component's options, without the last dot."""
    return f"{kind}.{name}" if kind in SEVERAL else kind


def options_of(
    kind: str, names: Collection[str], options: Mapping[str, OptionValue]
) -> dict[str, OptionValue]:
    """Return the options of one component, by key.

    Args:
        names: names of the component; they matter only for a kind of which a server uses several.
        options: all options, by full name.
    """
    found = {}
    for full, value in options.items():
        of, _, key = full.partition(".")
        if of != kind:
            continue
        if kind in SEVERAL:
            component, _, key = key.rpartition(".")
            if not _is_among(component, names):
                continue
        found[key] = value
    return found


def unified(full: str) -> str:
    """Return the same text for all spellings of an option's full name."""
    kind, _, rest = full.partition(".")
    name, _, key = rest.rpartition(".")
    return f"{kind}.{_plain(name)}.{key}" if kind in SEVERAL else full


def merged(*sources: Mapping[str, ValueT]) -> dict[str, ValueT]:
    """Return the options of all sources, by full name. Later ones take precedence, whatever the spelling."""
    found = {unified(full): (full, value) for source in sources for full, value in source.items()}
    return dict(found.values())


def check_option_keys(options: Mapping[str, OptionValue]) -> None:
    """Raise ConfigError for an option that is not named "kind.key" or "kind.name.key", or whose kind has no options.

    `Entry.build_options` checks later whether the chosen component has the option.
    """
    kinds = kinds_with_options() if options else []
    for full in options:
        kind, dot, key = full.partition(".")
        if not (dot and key and kind in kinds):
            names = ", ".join(f"{kind}.NAME.…" if kind in SEVERAL else f"{kind}.…" for kind in kinds)
            none = (
                f"components of the kind {kind!r} have none; "
                if kind in INTERFACES and kind not in kinds
                else ""
            )
            raise ConfigError(f"there is no component option {full!r}; {none}options are named {names}")
        if kind in SEVERAL and not all(key.rpartition(".")):
            raise ConfigError(
                f"component option {full!r} does not say which {spoken(kind)} it is for; write {kind}.NAME.{key}"
            )


def refuse_options(kind: str, options: Mapping[str, OptionValue], why: str) -> None:
    """Raise ConfigError if options are given for a kind of which no component is in use.

    Args:
        why: end of the error message, which says why no component is in use and how to choose one.
    """
    for full in options:
        of, _, key = full.partition(".")
        if of == kind:
            raise ConfigError(f"{spoken(kind)} option {key!r} is given, but {why}")


def refuse_options_of_others(
    kind: str, chosen: Collection[str], options: Mapping[str, OptionValue], hint: str
) -> None:
    """Raise ConfigError if options are given for a component that is not among the chosen ones of its kind.

    Args:
        kind: a kind of which a server uses several components.
        chosen: names of the chosen components, "name" and "plugin/name".
        hint: command-line option that chooses them, with its value, such as "--observers NAME,NAME".
    """
    for full in options:
        of, _, key = full.partition(".")
        name = key.rpartition(".")[0]
        if of == kind and not _is_among(name, chosen):
            raise ConfigError(
                f"option {full!r} is given, but no {spoken(kind)} {name!r} is chosen; {hint} chooses them"
            )


def kinds_with_options() -> list[str]:
    """Return the kinds of components that have options."""
    return [kind for kind, path in INTERFACES.items() if hasattr(import_path(path), "Options")]


def _is_among(given: str, names: Collection[str]) -> bool:
    return _plain(given) in map(_plain, names)


def _plain(name: str) -> str:
    return name.replace("-", "_").lower()
