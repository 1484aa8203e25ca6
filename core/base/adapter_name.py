"""Names of adapters, and adapters as settings name them: NAME=PATH."""

from __future__ import annotations

from collections.abc import Iterable

from .errors import ConfigError

MAX_NAME = 256


def what_is_wrong(name: str) -> str:
    """Return the reason why an adapter cannot have this name, as the end of a sentence; "" if it can."""
    if name and len(name) <= MAX_NAME and name.isprintable() and name == name.strip(" /"):
        return ""
    return f"it must have 1 to {MAX_NAME} printable characters, without spaces and slashes around them"


def fault_of_adapter(text: str) -> str:
    """Return the end of an error message about a text that is not NAME=PATH; "" if it is."""
    name, equals, path = text.partition("=")
    if not equals or not path:
        return "write NAME=PATH"
    wrong = what_is_wrong(name)
    return f"it has the name {name!r:.100}; {wrong}" if wrong else ""


def split_adapter(text: str) -> tuple[str, str]:
    """Return the name and the path in NAME=PATH.

    Raises:
        ConfigError: the text has no name or no path, or the name is not allowed.
    """
    if wrong := fault_of_adapter(text):
        raise ConfigError(f"--adapter is {text!r:.200}; {wrong}")
    name, _, path = text.partition("=")
    return name, path


def split_adapters(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Return the name and the path of each adapter.

    Raises:
        ConfigError: as in `split_adapter`; or two have the same name.
    """
    found = [split_adapter(text) for text in texts]
    names = [name for name, _ in found]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"--adapter names {twice!r} twice; give each adapter a name of its own")
    return found
