"""Compares long values by their hashes, since a report of how they differ takes pytest minutes."""

from __future__ import annotations

import hashlib
from typing import Any


def brief(found: Any) -> Any:
    """Replace long bytes by a text with their length and hash; return other values unchanged.

    If the variable CI is set, pytest searches for every difference between two values. The time grows with
    the square of their length: more than 10 minutes for 1 MB.
    """
    if not isinstance(found, bytes) or len(found) < 200:
        return found
    return f"{len(found)} bytes with sha256 {hashlib.sha256(found).hexdigest()}"
