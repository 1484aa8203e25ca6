"""Parses completion windows: the time in which a batch must run, as text such as "24h".

The command line imports this module, too.
"""

from __future__ import annotations

import re

from llmfw.core.base.errors import RequestError

MAX_WINDOW_S = 30 * 24 * 3600
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

_WINDOW = re.compile(r"([1-9][0-9]{0,7})([smhd])")


def window_seconds(given: str) -> int:
    """Return the seconds in a completion window such as "24h"; raise RequestError if it is not allowed."""
    found = _WINDOW.fullmatch(given)
    seconds = int(found[1]) * SECONDS[found[2]] if found else 0
    if not 0 < seconds <= MAX_WINDOW_S:
        raise RequestError(
            f"completion_window is {given[:100]!r}; it must be '24h', or another number of s, m, h or d up to '30d'",
            param="completion_window",
        )
    return seconds
