"""Answers requests whose asyncio task was cancelled by a plugin's code.

asyncio does not say who has cancelled a task. llmfw never cancels the task of a request, and uvicorn does only
when it stops. Any other cancellation is attributed to a plugin: the innermost plugin whose code was running.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

from llmfw.api.access.error_reply import send_error
from llmfw.api.anthropic.errors import anthropic_error
from llmfw.api.http.sse import STRAIGHT, error_frame, frame

from .reply import OnStart, Reply

logger = logging.getLogger(__name__)

SHUTDOWN = "Task cancelled, timeout graceful shutdown exceeded"
"""Message with which uvicorn cancels the requests that still run when it stops."""

Blame = Callable[[Exception], Exception]
"""Logs a failure of a plugin, and returns the error for the client."""

_KEY = "llmfw.request_task"


class CancelledRequests:
    """ASGI middleware that sends an error reply if the request's task is cancelled while the server runs.

    A server-sent stream that has started ends with an error event; any other reply that has started is cut.
    Must wrap all middleware and routes of plugins, which report cancellations by a `CancellationWatch`.

    Args:
        app: the application.
        on_start: functions that are called with the start of each reply, in this order.
    """

    def __init__(self, app: ASGIApp, on_start: Sequence[OnStart] = ()) -> None:
        self._app = app
        self._on_start = on_start
        self._is_stopping = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection, or the start and the end of the server."""
        if scope["type"] != "http":  # type: ignore[comparison-overlap]
            await self._app(scope, self._noting_stop(receive), send)
            return
        reply = Reply(cast("HTTPScope", scope), send, self._on_start)
        scope[_KEY] = request = _RequestTask(reply)  # type: ignore[literal-required]
        scope[STRAIGHT] = lambda: reply.send  # type: ignore[literal-required]
        try:
            await self._app(scope, receive, reply.send)
        except asyncio.CancelledError as error:
            if self._is_stopping or SHUTDOWN in error.args or not request.uncancel():
                raise
            await request.fail(error, scope["path"])
        finally:
            # Both refer to the scope. If it kept them, each request would leave some 30 objects to the garbage
            # collector, which took a fourth of the API process's time.
            scope.pop(_KEY, None)  # type: ignore[misc]
            scope.pop(STRAIGHT, None)  # type: ignore[misc]

    def _noting_stop(self, receive: Receive) -> Receive:
        async def noting() -> Any:
            message: Any = await receive()
            self._is_stopping = self._is_stopping or message["type"] == "lifespan.shutdown"
            return message

        return noting


class CancellationWatch:
    """Finds out whether the task of a request is cancelled while a plugin's code runs.

    Args:
        scope: scope of the request. Without `CancelledRequests` around it, nothing is noted.
        blame: called if the task was cancelled while this plugin's code, and no inner plugin's, was running.
    """

    def __init__(self, scope: Any, blame: Blame) -> None:
        self._request: _RequestTask | None = scope.get(_KEY)
        self._blame = blame
        self._before = self._count()

    def note(self) -> None:
        """Blame the plugin if the task has been cancelled since the watch was created."""
        request = self._request
        if request is not None and request.blame is None and self._count() > self._before:
            request.blame = self._blame

    def _count(self) -> int:
        """Return how often the request's task was cancelled; 0 in any other task, which plugins may cancel."""
        task = asyncio.current_task()
        is_own = self._request is not None and task is self._request.task
        return task.cancelling() if task is not None and is_own else 0


class _RequestTask:
    """The task of one request.

    Args:
        reply: the reply to the request.

    Attributes:
        task: the task.
        blame: function that logs a failure of the plugin that has cancelled the task; None: unknown plugin.
    """

    def __init__(self, reply: Reply) -> None:
        self.task = asyncio.current_task()
        self.blame: Blame | None = None
        self._reply = reply

    def uncancel(self) -> bool:
        """Withdraw the cancellation, so that a reply can be sent. Return whether there was one."""
        was_cancelled = False
        while self.task is not None and self.task.cancelling():
            self.task.uncancel()
            was_cancelled = True
        return was_cancelled

    async def fail(self, error: asyncio.CancelledError, path: str) -> None:
        answer = (self.blame or _blame_nobody)(
            _TaskCancelledError("the request's task was cancelled").with_traceback(error.__traceback__)
        )
        if self._reply.is_complete:
            return
        if not self._reply.is_started:
            await send_error(self._reply.send, path, answer)
        elif self._reply.is_event_stream:
            body = b"\n\n" + _event(answer, path)
            await self._reply.send({"type": "http.response.body", "body": body, "more_body": False})
        else:  # the only thing left to do is to end the connection
            raise answer from error


class _TaskCancelledError(Exception):
    """The task of a request was cancelled."""


def _event(error: Exception, path: str) -> bytes:
    """Return the event that ends a stream with an error, in the format of the API that the path belongs to."""
    if path.startswith("/v1/messages"):
        return b"event: error\n" + frame(msgspec.json.encode(anthropic_error(error)))
    return error_frame(error)


def _blame_nobody(error: Exception) -> Exception:
    logger.error(
        "code in this process cancelled the task of a request, which llmfw never does; "
        "leave out plugins (--no-plugin NAME) to find which does",
        exc_info=error,
    )
    return error
