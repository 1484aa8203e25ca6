"""Middleware around a plugin's routes: whatever they raise or send, the client gets a well-formed error."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from litestar import Request, Response
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from llmfw.core.plugin.containment import contained, raise_if_task_ends

Fail = Callable[[Request[Any, Any, Any], Exception], Response[bytes]]
"""Logs an exception of a route, and returns the error reply."""

_HEADER_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")


class WrongReplyError(Exception):
    """A route sent a reply that is no valid HTTP."""


class RouteGuard:
    """Catches what a plugin's routes raise that is no Exception, and replies that are no valid HTTP.

    Litestar handles only an Exception that is raised before a reply starts. Anything else would end the
    connection without a reply, or without a line in the log that names the plugin.

    Args:
        app: the routes.
        fail: called once for each failure that Litestar does not handle.
    """

    def __init__(self, app: ASGIApp, fail: Fail) -> None:
        self._app = app
        self._fail = fail

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":  # type: ignore[comparison-overlap]
            await self._app(scope, receive, send)
            return
        is_started = False
        wrong: WrongReplyError | None = None

        async def checked(message: Message) -> None:
            nonlocal is_started, wrong
            if message["type"] == "http.response.start":
                try:
                    _check_head(message)
                except WrongReplyError as error:
                    wrong = error
                    raise
                is_started = True
            await send(message)

        try:
            await self._app(scope, receive, checked)
        except BaseException as error:
            raise_if_task_ends(error)
            request: Request[Any, Any, Any] = Request(scope)
            reply = self._fail(request, contained(wrong or _cause(error)))
            if is_started:  # all that can be done is to end the connection
                raise contained(error) from error
            await reply.to_asgi_response(app=None, request=request)(scope, receive, send)


def _cause(error: BaseException) -> BaseException:
    """Return the exception of the route, without the one that Litestar wraps around it."""
    is_wrapper = type(error).__name__ == "LitestarException" and error.__cause__ is not None
    return error.__cause__ if is_wrapper and error.__cause__ is not None else error


def _check_head(message: Any) -> None:
    """Raise WrongReplyError if the status or a header of a reply is not valid."""
    status = message["status"]
    if not (isinstance(status, int) and 200 <= status < 600):
        raise WrongReplyError(f"the status is {status!r}; it must be from 200 to 599")
    for name, value in message["headers"]:
        if not (_HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value)):
            raise WrongReplyError(f"the header {name!r:.80}: {value!r:.80} is not valid")
