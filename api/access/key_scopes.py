"""Parses the scopes of an API key: `scopes=generate,models`, after the key in a key file."""

from __future__ import annotations

from llmfw.core.base.errors import ConfigError
from llmfw.core.interfaces.scopes import ADMIN_SCOPE, SCOPES

from .key_text import is_short

PREFIX = "scopes="


def parse_scopes(text: str) -> frozenset[str]:
    """Return the scopes in a text that starts with PREFIX: `scopes=NAME,NAME`.

    Raises:
        ConfigError: a name is missing or unknown. The message shows short words of letters only, because anything
            else may be a part of a key.
    """
    names = text.removeprefix(PREFIX).split(",")
    for name in names:
        if name not in SCOPES:
            raise ConfigError(_problem(name))
    return frozenset(names)


def _problem(name: str) -> str:
    """Return the reason why a key cannot have a scope of this name, and the remedy."""
    if name == ADMIN_SCOPE:
        return f"a key cannot have the scope {name!r}; write administrators' keys in --admin-api-key-file"
    if not name:
        return f"'{PREFIX}' has an empty name; leave '{PREFIX}' out for a key with all scopes"
    shown = f" {name!r}" if name.isalpha() and is_short(name) else ""
    return f"unknown scope{shown}; list some of {','.join(SCOPES)}, without spaces"
