"""Middleware around a plugin's routes: whatever they raise or send, the client gets a well-formed error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from litestar import Request, Response
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from llmfw.api.http.sse import STRAIGHT, frame, is_event_stream
from llmfw.core.plugin.containment import contained, raise_if_task_ends
from llmfw.core.plugin.reply_rules import WrongReplyError, checked_length, with_headers

from .cancelled_requests import CancellationWatch

Fail = Callable[[Request[Any, Any, Any], Exception], Response[bytes]]
"""Logs an exception of a route, and returns the error reply."""

Log = Callable[[Request[Any, Any, Any], Exception], Exception]
"""Logs an exception of a route, and returns the error for the client."""


class RouteGuard:
    """Catches a plugin's invalid HTTP replies, and exceptions that are not derived from Exception.

    Litestar handles only an Exception that is raised before a reply starts. Anything else would end the
    connection without a reply, or without a line in the log that names the plugin. A stream that raises before
    its first bytes gets an error reply, and server-sent events that raise later end with an error event.

    Args:
        app: the routes.
        fail: called once for each failure that Litestar does not handle.
        log: called if the route cancels the task of its request; logs it, and returns the error for the client.
    """

    def __init__(self, app: ASGIApp, fail: Fail, log: Log) -> None:
        self._app = app
        self._fail = fail
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":  # type: ignore[comparison-overlap]
            await self._app(scope, receive, send)
            return
        head, task = _Head(send), asyncio.current_task()
        request: Request[Any, Any, Any] = Request(scope)
        watch = CancellationWatch(scope, partial(self._log, request))
        scope.pop(STRAIGHT, None)  # type: ignore[misc]  # the plugin may have layers of its own
        try:
            await self._app(scope, receive, head.send)
            await head.release()
        except BaseException as error:
            watch.note()
            raise_if_task_ends(error, task)
            cause = contained(head.wrong or _cause(error))
            reply = self._fail(request, cause)
            if not head.is_sent:
                await reply.to_asgi_response(app=None, request=request)(scope, receive, send)
            elif head.is_event_stream:
                await send(
                    {"type": "http.response.body", "body": b"\n\n" + frame(reply.content), "more_body": False}
                )
            else:  # the only thing left to do is to end the connection
                raise contained(error) from error


class _Head:
    """Holds a reply's status and headers back until the body begins, because a stream may fail before.

    Attributes:
        is_sent: whether the client has the status and the headers.
        is_event_stream: whether the reply consists of server-sent events.
        wrong: reason why the reply is not valid HTTP; None: it is valid.
    """

    def __init__(self, send: Send) -> None:
        self.is_sent = False
        self.is_event_stream = False
        self.wrong: WrongReplyError | None = None
        self._send = send
        self._held: Message | None = None

    async def send(self, message: Message) -> None:
        """Send a message of the reply, or hold it back if it is the first.

        Raises:
            WrongReplyError: the status or a header is not valid.
        """
        if message["type"] != "http.response.start":
            await self.release()
            await self._send(message)
            return
        message = with_headers(message)
        try:
            checked_length(message)
        except WrongReplyError as error:
            self.wrong = error
            raise
        self.is_event_stream = is_event_stream(message)
        self._held = message

    async def release(self) -> None:
        """Send the message that is held back."""
        if self._held is not None:
            held, self._held, self.is_sent = self._held, None, True
            await self._send(held)


def _cause(error: BaseException) -> BaseException:
    """Return the route's own exception from inside the wrappers of Litestar and its task groups."""
    if isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        return _cause(error.exceptions[0])
    is_wrapper = type(error).__name__ == "LitestarException" and error.__cause__ is not None
    return _cause(error.__cause__) if is_wrapper and error.__cause__ is not None else error
