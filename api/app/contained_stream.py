"""Keeps a SystemExit in the stream of a plugin's route from ending the server."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable
from inspect import isawaitable
from typing import Any, cast

import anyio
from litestar import Router
from litestar.response import Stream
from litestar.routes import HTTPRoute
from litestar.utils.sync import AsyncIteratorWrapper

from llmfw.core.plugin.containment import contained, raise_if_task_ends


def contain_streams(router: Router) -> None:
    """Contain exceptions that are not of type Exception in the streams of a router's handlers.

    Litestar runs a stream in a task of its own. asyncio ends the process for a SystemExit in any task. A
    handler and each of its owners may have an `after_request` function, of which Litestar calls only the
    innermost. The containment runs after that function.
    """
    for route in router.routes:
        for handler in route.route_handlers if isinstance(route, HTTPRoute) else ():
            own: list[Any] = [each.after_request for each in handler.ownership_layers if each.after_request]
            handler.after_request = _after(own[-1] if own else None)


def _after(own: Callable[[Any], Any] | None) -> Any:
    async def contain(reply: Any) -> Any:
        if own is not None:
            found: Any = own(reply)
            reply = await found if isawaitable(found) else found
        if isinstance(reply, Stream):
            reply.iterator = _contained(reply.iterator)
        return reply

    return contain


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
            await parts.aclose()  # frees the stream's resources at once if the client has left


def _raise_if_stream_ends(error: BaseException) -> None:
    """Re-raise an exception that must end the stream: the client left, or the process or the server ends.

    Litestar runs a stream in a scope of anyio, and cancels that scope, never the task. If the task is cancelled
    and the scope is not, the plugin has cancelled its own task.
    """
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task and anyio.current_effective_deadline() != -math.inf:
        while task.cancelling():
            task.uncancel()
    raise_if_task_ends(error)


def _parts(source: Any) -> AsyncIterable[str | bytes]:
    """Return a stream's source as an asynchronous iterable. Litestar also allows functions and iterables."""
    if callable(source) and not isinstance(source, Iterable | AsyncIterable):
        source = source()
    if isinstance(source, AsyncIterable):
        return source
    return cast("AsyncIterable[str | bytes]", AsyncIteratorWrapper(iter(source)))
