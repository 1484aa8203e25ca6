"""Runs work in asyncio tasks of its own, and describes for the log what a task runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
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


async def withdraw_self_cancel(work: Awaitable[ResultT], is_cancelled: Callable[[], bool]) -> ResultT:
    """Await work in the caller's task, and return its result. The task goes on if code in it has cancelled it.

    Args:
        is_cancelled: whether llmfw has cancelled the task.

    Raises:
        SelfCancelledError: code in the task has cancelled the task.
    """
    task = asyncio.current_task()
    assert task is not None
    try:
        try:
            return await work
        finally:
            if task.cancelling() and not is_cancelled():
                await asyncio.sleep(0)  # raises a cancellation that came after the last wait of `work`
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        while task.cancelling():
            task.uncancel()
        raise self_cancelled() from error
    finally:
        # A cancelled task refers to its exception, and that to this frame. If the frame kept the task, all that the
        # task's frames hold would live until the next garbage collection.
        del task


async def end(task: asyncio.Future[Any]) -> None:
    """Cancel a task, and wait until it has ended. Ignore its result and its exception.

    Takes a tenth of the calls of `asyncio.gather`. The caller's own cancellation is raised at the end of the task.
    """
    task.cancel()
    caller = asyncio.current_task()
    before = caller.cancelling() if caller is not None else 0
    try:
        await task
    except asyncio.CancelledError:
        if not task.done() or (caller is not None and caller.cancelling() > before):
            raise
    except Exception:  # noqa: BLE001, S110 - the task was cancelled, so its outcome does not matter
        pass
    finally:
        del caller, task  # as in `withdraw_self_cancel`


def self_cancelled() -> SelfCancelledError:
    """Return the error for a task that was cancelled by the code in it."""
    return SelfCancelledError(
        "code in this process cancelled its own task, which llmfw never does; leave out plugins (--no-plugin NAME) "
        "to find which does"
    )
