"""Explains to users why a text could not be read as JSON or TOML.

Replaces Python's own messages if they concern Python itself, such as its recursion limit.
"""

from __future__ import annotations

import sys


def unreadable(error: ValueError | RecursionError) -> str:
    """Return a one-line explanation, for the user, of an error that `json` or `tomllib` raised."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        is_utf16 = error.object[:2] in (b"\xff\xfe", b"\xfe\xff")
        return f"it is {'UTF-16' if is_utf16 else f'not UTF-8 at byte {error.start}'}; save it as UTF-8"
    if "int_max_str_digits" in str(error):
        return f"it has a whole number of more than {sys.get_int_max_str_digits()} digits"
    return str(error)
