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
        is_complete: whether the last message has been sent.
    """

    __slots__ = ("_on_start", "_scope", "_send", "_start", "is_complete")

    def __init__(self, scope: HTTPScope, send: Send, on_start: Sequence[OnStart]) -> None:
        self._scope = scope
        self._send = send
        self._on_start = on_start
        self._start: Message | None = None
        self.is_complete = False

    @property
    def is_started(self) -> bool:
        """Whether the status and the headers have been sent."""
        return self._start is not None

    @property
    def is_event_stream(self) -> bool:
        """Whether the reply is a stream of server-sent events; False before its start."""
        return self._start is not None and is_event_stream(self._start)

    # A plain function, not a coroutine, because each event of a stream passes through it.
    def send(self, message: Message) -> Awaitable[None]:
        """Send the next message."""
        if message["type"] == "http.response.start":
            self._start = message
            for each in self._on_start:
                each(self._scope, message)
        else:
            self.is_complete = not message.get("more_body", False)
        return self._send(message)
