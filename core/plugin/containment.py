"""Decides which exceptions from a plugin's code are the plugin's failure, and which end the process.

A plugin may raise anything. A panic in an extension written in Rust, for example, is a BaseException but not
an Exception. Code that calls a plugin therefore catches BaseException, and passes it to a function of this
module first:

    except BaseException as error:
        raise_if_process_ends(error)
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

from llmfw.core.base.described import described
from llmfw.core.base.disarm import disarm, readable
from llmfw.core.base.process_end import CtrlCInterrupt, ProcessEnd, raise_if_end

if TYPE_CHECKING:
    import asyncio

__all__ = [
    "CtrlCInterrupt",
    "ProcessEnd",
    "contained",
    "naming_ctrl_c",
    "raise_if_process_ends",
    "raise_if_task_ends",
]


def raise_if_process_ends(error: BaseException) -> None:
    """Raise an exception again if it ends the process; make any other safe to handle (see `disarm`)."""
    raise_if_end(error)
    disarm(error)


@contextlib.contextmanager
def naming_ctrl_c() -> Iterator[None]:
    """Let a Ctrl-C raise CtrlCInterrupt in the block, so that a plugin's own KeyboardInterrupt is the plugin's failure.

    Has no effect outside the main thread, or if something else handles SIGINT.
    """
    import threading  # the command line starts without it

    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is _interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise CtrlCInterrupt


def contained(error: BaseException) -> Exception:
    """Return a plugin's exception as an Exception, with the same traceback.

    Raises:
        BaseException: the exception itself, if it ends the process.
    """
    raise_if_process_ends(error)
    error = readable(error)
    if isinstance(error, Exception):
        return error
    return RuntimeError(described(error)).with_traceback(error.__traceback__)


def raise_if_task_ends(error: BaseException, task: asyncio.Task[Any] | None = None) -> None:
    """Raise an exception again if it ends the process or the current asyncio task.

    A CancelledError that a plugin raises by itself, while nothing cancels the task, is the plugin's failure.

    Args:
        task: the task that runs the plugin's code, if the code is a coroutine; None: the code may be a
            generator. A coroutine is closed with a GeneratorExit only from outside its task. So a
            GeneratorExit within the task is the plugin's failure.
    """
    import asyncio  # the command line starts without it

    raise_if_process_ends(error)
    if issubclass(type(error), GeneratorExit) and (task is None or current_task() is not task):
        raise error
    if issubclass(type(error), asyncio.CancelledError):
        task = current_task()
        if task is None or task.cancelling():
            raise error


def current_task() -> asyncio.Task[Any] | None:
    """Return the running asyncio task; None if there is none, for example after the event loop has ended."""
    import asyncio  # the command line starts without it

    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
