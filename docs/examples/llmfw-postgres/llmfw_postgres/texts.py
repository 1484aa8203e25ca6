"""Any text as a text that PostgreSQL can hold, which neither a NUL nor a lone surrogate is.

Ordinary text stays as it is, so that what is in the tables can be read and searched by anyone.
"""

import re

_ESCAPED = re.compile(r"\\(\\|0|u[0-9a-f]{4})")


def storable(text: str) -> str:
    """Return what stands for a text."""
    escaped = text.replace("\\", "\\\\").replace("\0", "\\0")
    return escaped.encode("utf-8", "backslashreplace").decode()


def restored(stored: str) -> str:
    """Return the text that something stands for."""
    return _ESCAPED.sub(lambda found: _meant(found[1]), stored)


def _meant(escape: str) -> str:
    return {"\\": "\\", "0": "\0"}.get(escape) or chr(int(escape[1:], 16))
