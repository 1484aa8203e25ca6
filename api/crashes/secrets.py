"""Hides keys and passwords in the texts of crash reports and bundles.

The texts should have none: this is the second line of defense.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from llmfw.api.access.redaction import HIDDEN, hide_keys
from llmfw.core.base.secret_name import names_secret

MIN_LENGTH = 6
"""Characters from which the value of a secret is searched for. A shorter one would hide ordinary words."""

_WORD = re.compile(r"[^\s'\"]+")


class Secrets:
    """Hides secrets in a text: known secrets, passwords in URLs, and text that looks like a key.

    Args:
        values: secrets to hide.
        environment: environment variables. If a variable's name looks like that of a secret, its value is
            hidden, too.
    """

    def __init__(self, values: Iterable[str] = (), environment: Mapping[str, str] = os.environ) -> None:
        named = [value for name, value in environment.items() if names_secret(name)]
        lines = {line.strip() for value in (*values, *named) for line in (value, *value.splitlines())}
        known = sorted((line for line in lines if len(line) >= MIN_LENGTH), key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def hide(self, text: str) -> str:
        """Return the text with `***` in place of each secret."""
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        return hide_keys(_WORD.sub(_without_user, text))

    def hide_in(self, value: Any) -> Any:
        """Return a value of JSON with the secrets in its texts hidden; numbers and names of fields stay."""
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, Mapping):
            return {name: self.hide_in(each) for name, each in value.items()}
        return [self.hide_in(each) for each in value] if isinstance(value, list | tuple) else value


def _without_user(word: re.Match[str]) -> str:
    """Return a word without the text between "://" and the last "@".

    A password that is not percent-encoded may contain "/", "#" and "@".
    """
    scheme, is_url, rest = word[0].partition("://")
    _, at, host = rest.rpartition("@")
    return f"{scheme}://{HIDDEN}@{host}" if is_url and at else word[0]


def strings_in(value: Any) -> Iterable[str]:
    """Yield all texts in a value of a setting, such as the keys in its tuples."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from strings_in(list(value.values()))
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from strings_in(each)
