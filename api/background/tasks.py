"""Describes for the log what an asyncio task runs."""

from __future__ import annotations

import asyncio
from typing import Any


def innermost(task: asyncio.Task[Any]) -> str:
    """Return the innermost coroutine of a task that has code, with its file and line."""
    frames = task.get_stack(limit=1)
    if not frames:
        return repr(task.get_coro())
    code = frames[0].f_code
    return f"{code.co_qualname} ({code.co_filename}:{frames[0].f_lineno})"
