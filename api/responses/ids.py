"""Ids of responses and of their items.

An item's id contains its response's id, by which the item can be found.
"""

from __future__ import annotations

import re
import uuid
from typing import Literal

_ITEM = re.compile(r"[a-z]+_([0-9a-f]{32})[io]\d+")


def new_response_id() -> str:
    """Return an id for a response."""
    return f"resp_{uuid.uuid4().hex}"


def item_id(prefix: str, response_id: str, side: Literal["i", "o"], index: int) -> str:
    """Return the id of an input ("i") or output ("o") item of a response."""
    return f"{prefix}_{response_id.removeprefix('resp_')}{side}{index}"


def response_of(item_id: str) -> str | None:
    """Return the id of the response that an item belongs to; None if the item's id is not one of ours."""
    found = _ITEM.fullmatch(item_id)
    return f"resp_{found[1]}" if found else None
