"""Runs work in asyncio tasks of its own, and describes for the log what a task runs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


class SelfCancelledError(Exception):
    """Code that ran in a task has cancelled the task, which llmfw itself never does."""


def innermost(task: asyncio.Task[Any]) -> str:
    """Return the innermost coroutine of a task that has code, with its file and line."""
    frames = task.get_stack(limit=1)
    if not frames:
        return repr(task.get_coro())
    code = frames[0].f_code
    return f"{code.co_qualname} ({code.co_filename}:{frames[0].f_lineno})"


async def run_in_own_task(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run a coroutine in a task of its own, and return its result.

    A component of a plugin may cancel the task that it runs in. Without a task of its own, that would look as if
    the caller were cancelled.

    Raises:
        SelfCancelledError: code in the task has cancelled it.
    """
    task = asyncio.create_task(work)
    try:
        return await task
    except asyncio.CancelledError as error:
        caller = asyncio.current_task()
        if not task.cancelled() or (caller is not None and caller.cancelling()):
            raise
        raise self_cancelled() from error


def self_cancelled() -> SelfCancelledError:
    """Return the error for a task that was cancelled by the code in it."""
    return SelfCancelledError(
        "code in this process cancelled its own task, which llmfw never does; leave out plugins (--no-plugin NAME) "
        "to find which does"
    )
