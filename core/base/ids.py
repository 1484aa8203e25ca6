"""Ids that sort by when they were made."""

from __future__ import annotations

import secrets
import time


def sortable_id(prefix: str) -> str:
    """Return a prefix and 32 hexadecimal digits: 16 of the time in nanoseconds, 16 at random."""
    return f"{prefix}{time.time_ns():016x}{secrets.token_hex(8)}"
