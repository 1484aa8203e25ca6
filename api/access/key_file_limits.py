"""Parses the limits of a tenant: `requests_per_minute=60 max_requests=8`, after a key in a key file."""

from __future__ import annotations

from collections.abc import Iterable

from llmfw.core.base.errors import ConfigError
from llmfw.core.interfaces.tenant_limits import LIMIT_NAMES, MAX_LIMIT, TenantLimits

from .key_scopes import PREFIX


def parse_limits(words: Iterable[str]) -> TenantLimits | None:
    """Return the limits that words of the form `NAME=NUMBER` give; None if there are no words.

    Raises:
        ConfigError: a word has another form, a name comes twice, or a number is out of range. The message
            shows names of limits only, because anything else may be a part of a key.
    """
    found: dict[str, int] = {}
    for word in words:
        name, _, number = word.partition("=")
        if name not in LIMIT_NAMES:
            raise ConfigError(
                f"something other than '{PREFIX}NAME,NAME' or a limit (NAME=NUMBER with one of "
                f"{', '.join(LIMIT_NAMES)}) follows the key; write the key and its scopes without spaces, and comments "
                "on lines of their own"
            )
        if name in found:
            raise ConfigError(f"the limit {name!r} is given twice; give it once")
        if not (number.isascii() and number.isdigit() and len(number) <= len(str(MAX_LIMIT))):
            raise ConfigError(_problem(name))
        found[name] = int(number)
        if not 1 <= found[name] <= MAX_LIMIT:
            raise ConfigError(_problem(name))
    return TenantLimits(**found) if found else None


def _problem(name: str) -> str:
    return f"the limit {name!r} is not a number from 1 to {MAX_LIMIT}; write digits only, without spaces around '='"
