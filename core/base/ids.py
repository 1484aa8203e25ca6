"""Ids that sort by their time of creation."""

from __future__ import annotations

import secrets
import time


def sortable_id(prefix: str) -> str:
    """Return a new id: the prefix, 16 hexadecimal digits of the time in nanoseconds, and 16 random ones."""
    return f"{prefix}{time.time_ns():016x}{secrets.token_hex(8)}"
