"""The reply to one request, as it passes the outermost layer of the application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from litestar.types import HTTPScope, Message, Send

from llmfw.api.http.sse import is_event_stream

OnStart = Callable[[HTTPScope, Message], None]
"""Sees the start of a reply to a request with this scope, and may change the message's headers."""


class Reply:
    """Passes the messages of a reply on, and tracks its progress.

    All layers that need only the start of a reply share this one, because each event of a stream passes through it.

    Args:
        scope: scope of the request.
        send: sends a message to the client.
        on_start: functions that are called with the start of the reply, in this order.

    Attributes:
        is_started: whether the status and the headers have been sent.
        is_complete: whether the last message has been sent.
        is_event_stream: whether the reply is a stream of server-sent events; False before its start.
    """

    __slots__ = ("_on_start", "_scope", "_send", "is_complete", "is_event_stream", "is_started")

    def __init__(self, scope: HTTPScope, send: Send, on_start: Sequence[OnStart]) -> None:
        self._scope = scope
        self._send = send
        self._on_start = on_start
        self.is_started = self.is_complete = self.is_event_stream = False

    # A plain function, not a coroutine, because each event of a stream passes through it.
    def send(self, message: Message) -> Awaitable[None]:
        """Send the next message."""
        if message["type"] == "http.response.start":
            self.is_started, self.is_event_stream = True, is_event_stream(message)
            for each in self._on_start:
                each(self._scope, message)
        else:
            self.is_complete = not message.get("more_body", False)
        return self._send(message)
