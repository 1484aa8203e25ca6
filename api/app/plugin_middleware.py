"""Runs the middleware of plugins, and contains its failures.

Layers from the outside inward: access log, request id, middleware with `before_authentication`, checks of
hosts, origins and keys, other middleware, routes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, cast

from litestar.types import ASGIApp, Receive, Scope, Send

from llmfw.api.access.error_reply import send_error
from llmfw.api.http.sse import STRAIGHT, is_event_stream
from llmfw.api.services.middleware import Middleware
from llmfw.api.text.terms import key_name, key_scopes, serving_client
from llmfw.core.base.disarm import disarm
from llmfw.core.interfaces.middleware import ASGIMessage
from llmfw.core.plugin.calls import EXPECTED_ERRORS
from llmfw.core.plugin.containment import contained, raise_if_task_ends
from llmfw.core.plugin.reply_rules import ReplyRules, WrongReplyError, with_headers

from .cancelled_requests import CancellationWatch


def wrapped(app: ASGIApp, middleware: Sequence[Middleware], *, outside_checks: bool) -> ASGIApp:
    """Wrap an application in the middleware outside, or inside, the checks of keys."""
    for each in reversed(middleware):
        if each.is_outside == outside_checks:
            app = PluginMiddleware(app, each)
    return app


class PluginMiddleware:
    """ASGI middleware that passes HTTP requests through a plugin's middleware.

    Other connections skip it. Whatever the plugin raises or sends, the client gets one valid reply, or its
    connection ends. Exceptions of the application pass through.

    Args:
        app: the application inside the middleware.
        middleware: the plugin's middleware.
    """

    def __init__(self, app: ASGIApp, middleware: Middleware) -> None:
        self._app = app
        self._middleware = middleware

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] != "http":  # type: ignore[comparison-overlap]
            await self._app(scope, receive, send)
            return
        self._middleware.calls.count += 1
        await _Exchange(self._app, self._middleware, scope, receive, send).run()


class _Exchange:
    """One request that passes through a plugin's middleware."""

    def __init__(
        self, app: ASGIApp, middleware: Middleware, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._app = app
        self._middleware = middleware
        self._scope, self._receive, self._send = scope, receive, send
        self._path: str = scope["path"]
        self._rules = ReplyRules(str(scope.get("method")))
        self._tenant, self._scopes = key_name.get(), key_scopes.get()
        self._wrong: WrongReplyError | None = None
        self._from_app: BaseException | None = None
        self._from_wrapper: BaseException | None = None
        self._is_left = self._is_over = self._is_swallowed = False
        self._is_streaming = self._is_plugin_awaited = False
        self._passing: Awaitable[None] | None = None
        self._onward = send  # for parts of a stream
        self._outer_straight: Callable[[], Send] | None = scope.get(STRAIGHT)  # type: ignore[assignment]
        self._has_events = False

    async def run(self) -> None:
        """Handle the request."""
        handle, task = self._middleware.component.handle, asyncio.current_task()
        watch = CancellationWatch(self._scope, self._log)
        try:
            await handle(self._call_app, cast("Any", self._scope), self._read, self._reply)
            if self._wrong is not None:
                raise self._wrong
            if self._from_wrapper is not None:
                self._report_wrapper(self._from_wrapper)
            if self._from_app is not None and not self._rules.is_complete:
                raise self._from_app
            if not self._is_left:
                self._rules.check_end()
        except BaseException as error:
            watch.note()
            raise_if_task_ends(error, task)
            own = self._wrong or self._from_wrapper
            if _alone(error) is self._from_app and own is None:
                raise
            await self._fail(contained(own or error))
        finally:
            self._is_over, self._is_streaming = True, False

    async def _call_app(self, scope: Any, receive: Any, send: Any) -> None:
        """Run the application inside the middleware."""
        if not self._middleware.is_outside and scope.get("path") != self._path:
            self._wrong = WrongReplyError(
                "it changed the path after the check of keys; only middleware with before_authentication may"
            )
            raise self._wrong
        # The plugin may call this in another task, such as a worker that the first request has started.
        watched = self._watched(send, self._reply)
        scope[STRAIGHT] = partial(self._straight, watched)
        try:
            with serving_client(self._tenant, self._scopes):
                await self._app(scope, self._watched(receive, self._read), watched)
            self._is_swallowed = self._from_wrapper is not None
        except BaseException as error:
            if self._from_wrapper is None and error is not self._wrong:
                self._from_app = error
            raise

    def _straight(self, own: Send) -> Send:
        """Return the shortest `send` for the events of a stream.

        Args:
            own: the `send` that was passed to the application.
        """
        return self._onward if self._middleware.skips_events and self._has_events else own

    def _report_wrapper(self, error: BaseException) -> None:
        """Report an exception of the plugin's `send` or `receive`, unless its `handle` dealt with it.

        Raises:
            BaseException: the exception, if the reply is incomplete.
        """
        if not self._rules.is_complete:
            raise error
        if self._is_swallowed:  # the error that the application has sent does not name the plugin
            self._log(contained(error))

    def _watched(self, given: Any, own: Any) -> Any:
        """Wrap the plugin's `receive` or `send`, so that its exceptions are attributed to the plugin.

        Args:
            given: what the plugin passes to the application: `own`, or a function around it.
        """
        if given == own:
            return own

        # A plain function, not a coroutine, because each event of a stream passes through it.
        def watched(*message: Any) -> Any:
            try:
                sent = given(*message)
            except BaseException as error:
                self._note_wrapper(error)
                raise
            return sent if sent is self._passing else self._awaited(sent)

        return watched

    async def _awaited(self, sent: Any) -> Any:
        """Await the result of the plugin's `receive` or `send`."""
        was_awaited, self._is_plugin_awaited = self._is_plugin_awaited, True
        try:
            return await sent
        except BaseException as error:
            self._note_wrapper(error)
            raise
        finally:
            self._is_plugin_awaited = was_awaited

    def _note_wrapper(self, error: BaseException) -> None:
        disarm(error)
        is_own = error is not self._from_app and error is not self._wrong
        if is_own and not (isinstance(error, asyncio.CancelledError) and _is_cancelling()):
            self._from_wrapper = error

    async def _read(self) -> Any:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._is_left = True
        return message

    def _reply(self, message: ASGIMessage) -> Awaitable[None]:
        """Send a message of the reply.

        Parts of a stream pass at once if the plugin's `send` is a plain function that returns this method's
        result. An exception of sending is then raised in the application's `await`, and is not attributed to
        the plugin.
        """
        if self._is_streaming and not self._is_plugin_awaited and _is_part(message):
            self._passing = self._onward(cast("Any", message))
            return self._passing
        return self._checked_reply(message)

    async def _checked_reply(self, message: ASGIMessage) -> None:
        if self._wrong is not None:
            raise self._wrong
        try:
            if self._is_over:
                raise WrongReplyError("it sent a message after it had returned")
            message = with_headers(message)
            self._rules.check(message)
        except WrongReplyError as error:
            self._wrong = error
            if self._is_over:
                self._log(error)
            raise
        try:
            await self._send(cast("Any", message))
        except BaseException as error:
            self._from_app = error  # not the plugin's either
            raise
        self._note_stream(message)

    def _note_stream(self, message: ASGIMessage) -> None:
        """Record whether more parts of a stream follow this message.

        If they are events, send them through as few wrappers as possible.
        """
        self._is_streaming = self._rules.is_endless and not self._is_over
        if self._is_streaming and message["type"] == "http.response.start" and is_event_stream(message):
            self._has_events = True
            self._onward = self._send if self._outer_straight is None else self._outer_straight()

    async def _fail(self, error: Exception) -> None:
        """Answer with an error; if a reply has started, end the connection unless the reply is complete."""
        reply = error if isinstance(error, EXPECTED_ERRORS) else self._log(error)
        if self._rules.is_complete:
            return
        if self._rules.is_started:
            raise reply from error
        await send_error(self._send, self._path, reply)

    def _log(self, error: Exception) -> Exception:
        return self._middleware.calls.failed(error, "handle()")


def _is_part(message: Any) -> bool:
    """Return whether a message is a body part, but not the last one, and needs no other check."""
    return (
        type(message) is dict
        and message.get("type") == "http.response.body"
        and message.get("more_body") is True
        and type(message.get("body")) is bytes
    )


def _is_cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and bool(task.cancelling())


def _alone(error: BaseException) -> BaseException:
    """Return the only exception in a group, which task groups raise, or the exception itself."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
