"""Keeps a SystemExit in the stream of a plugin's route from ending the server."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable
from typing import Any, cast

import anyio
from litestar.response import Stream
from litestar.utils.sync import AsyncIteratorWrapper

from llmfw.core.plugin.containment import contained, raise_if_task_ends


async def contain_stream(reply: Any) -> Any:
    """Contain what a stream raises that is no Exception; return any other reply as it is.

    Litestar runs a stream in a task of its own. asyncio ends the process for a SystemExit in any task.
    """
    if isinstance(reply, Stream):
        reply.iterator = _contained(reply.iterator)
    return reply


async def _contained(source: Any) -> AsyncIterator[str | bytes]:
    parts: Any = None
    try:
        parts = _parts(source)
        async for part in parts:
            yield part
    except BaseException as error:
        _raise_if_stream_ends(error)
        raise contained(error) from error
    finally:
        if isinstance(parts, AsyncGenerator):
            await parts.aclose()  # else a client that has left would hold what the stream uses until later


def _raise_if_stream_ends(error: BaseException) -> None:
    """Raise an exception again if the stream shall end: because of the process, the client or the server.

    Litestar runs a stream in a scope of anyio, and cancels that scope, never the task. If the task is cancelled
    and the scope is not, the plugin has cancelled its own task.
    """
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task and anyio.current_effective_deadline() != -math.inf:
        while task.cancelling():
            task.uncancel()
    raise_if_task_ends(error)


def _parts(source: Any) -> AsyncIterable[str | bytes]:
    """Return what a stream was given as an asynchronous iterator; Litestar allows functions and iterables, too."""
    if callable(source) and not isinstance(source, Iterable | AsyncIterable):
        source = source()
    if isinstance(source, AsyncIterable):
        return source
    return cast("AsyncIterable[str | bytes]", AsyncIteratorWrapper(iter(source)))
