"""The interface of HTTP middleware: it wraps the server's ASGI application.

Middleware runs in the API process, on its event loop. Only HTTP requests reach it: the server handles the
ASGI scopes "lifespan" and "websocket" itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, ClassVar

import msgspec

ASGIScope = MutableMapping[str, Any]
"""An ASGI connection scope; for middleware, always of the type "http"."""

ASGIMessage = MutableMapping[str, Any]
"""An ASGI message, such as "http.response.start"."""

ASGIReceive = Callable[[], Awaitable[ASGIMessage]]
"""Returns the next message from the client: a part of the body, or "http.disconnect"."""

ASGISend = Callable[[ASGIMessage], Awaitable[None]]
"""Sends a message of the reply to the client."""

ASGIApplication = Callable[[ASGIScope, ASGIReceive, ASGISend], Awaitable[None]]
"""An ASGI application."""


class HTTPMiddleware(ABC):
    """Wraps the handling of HTTP requests. Chosen by `--middleware NAME,NAME`, from the outside inward.

    The server builds one object of each chosen class when it starts, before the model is loaded.

    Attributes:
        before_authentication: whether the middleware runs before the checks of API keys, hosts and origins,
            so that it sees requests of unknown clients. By default, it runs after these checks.
        skips_events: whether the events of a stream may bypass the function that the middleware passes as
            `send`. The function then gets only the start of such a reply, which it must pass on at once, and
            the last message. Otherwise, each event of a stream costs one or two calls.
    """

    before_authentication: ClassVar[bool] = False
    skips_events: ClassVar[bool] = False

    class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Options of the component, set by `-o middleware.NAME.key=value`. Middleware with options overrides
        this."""

    def __init__(self, options: Options) -> None:
        """Prepare the middleware. Raise ConfigError if it cannot work."""
        self.options = options

    @abstractmethod
    async def handle(
        self, app: ASGIApplication, scope: ASGIScope, receive: ASGIReceive, send: ASGISend
    ) -> None:
        """Handle one HTTP request: await `app(scope, receive, send)`, or send a reply of its own.

        Called on the event loop of the API, for many requests at once. It must not block, because other
        requests wait meanwhile. To change a reply, pass your own function to `app` as `send`. The function
        gets a stream message by message, and must not hold messages back. Raise again any exception that
        `app` raises.

        Unless `before_authentication` is set, `scope["path"]` must not change, because the checks of keys
        have used it.

        If it raises, or sends messages that are not a valid reply, the client gets a 500 that names the
        plugin, or the connection ends if the reply has started. A `RequestError` or `OverloadedError` gives
        the same reply as in the server's own routes.
        """
