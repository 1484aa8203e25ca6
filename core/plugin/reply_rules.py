"""Checks that a reply's ASGI messages form valid HTTP. Used for plugins' middleware and routes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

_HEADER_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_WITHOUT_BODY = (204, 304)


class WrongReplyError(Exception):
    """Raised for a message that does not continue a valid reply."""


class ReplyRules:
    """Follows the messages of one reply.

    Args:
        method: method of the request. A reply to HEAD has a content-length, but no body.

    Attributes:
        is_started: whether the reply's status and headers have been sent.
        is_complete: whether the reply's last message has been sent.
    """

    __slots__ = ("_left", "_method", "is_complete", "is_started")

    def __init__(self, method: str) -> None:
        self._method = method
        self._left: int | None = None  # bytes of the body that the content-length still promises
        self.is_started = self.is_complete = False

    @property
    def is_endless(self) -> bool:
        """Whether the reply has started and may go on with parts of any length."""
        return self.is_started and not self.is_complete and self._left is None

    def check(self, message: Any) -> None:
        """Check the next message, and count it as sent.

        Raises:
            WrongReplyError: the message is not valid here.
        """
        kind = message.get("type") if isinstance(message, Mapping) else None
        if kind == "http.response.body":
            self._check_body(message)
        elif kind == "http.response.start":
            self._check_start(message)
        else:
            raise WrongReplyError(f"it sent {message!r:.100}, which is not a message of an HTTP reply")

    def check_end(self) -> None:
        """Raise WrongReplyError unless the reply is complete."""
        if not self.is_started:
            raise WrongReplyError("it ended without a reply")
        if not self.is_complete:
            raise WrongReplyError("it ended in the middle of its reply")

    def _check_start(self, message: Mapping[str, Any]) -> None:
        if self.is_started:
            raise WrongReplyError("it started a second reply to one request")
        length = checked_length(message)
        if self._method != "HEAD" and message["status"] not in _WITHOUT_BODY:
            self._left = length
        self.is_started = True

    def _check_body(self, message: Mapping[str, Any]) -> None:
        body, more = message.get("body", b""), message.get("more_body", False)
        if not self.is_started:
            raise WrongReplyError("it sent a body before the start of the reply")
        if self.is_complete:
            raise WrongReplyError("it sent a body after the end of the reply")
        if not isinstance(body, bytes | bytearray | memoryview):
            raise WrongReplyError(f"the body is {type(body).__name__}; it must be bytes")
        if self._left is not None:
            self._left -= len(body)
            if self._left < 0 or (self._left and not more):
                raise WrongReplyError("the length of the body is not its content-length")
        self.is_complete = not more


def checked_length(message: Mapping[str, Any]) -> int | None:
    """Check the status and headers of the start of a reply; return the content-length, or None.

    Raises:
        WrongReplyError: the status or a header is not valid.
    """
    status = message.get("status")
    if not (isinstance(status, int) and 200 <= status < 600):
        raise WrongReplyError(f"the status is {status!r}; it must be from 200 to 599")
    lengths = _checked_headers(message.get("headers", ()))
    if len(lengths) > 1:
        raise WrongReplyError("it sent several content-length headers")
    if not lengths:
        return None
    if not lengths[0].isdigit():
        raise WrongReplyError(f"the content-length is {lengths[0]!r:.80}; it must be a number")
    return int(lengths[0])


def with_headers(message: Any) -> Any:
    """Return the start of a reply with its headers in a list; return any other message unchanged.

    ASGI allows any iterable, such as a generator that can be read only once, and also no headers at all.
    """
    if not isinstance(message, Mapping) or message.get("type") != "http.response.start":
        return message
    headers = message.get("headers", ())
    return {**message, "headers": list(headers)} if isinstance(headers, Iterable) else message


def _checked_headers(headers: Any) -> list[bytes]:
    """Check the headers of a reply; return the values of content-length."""
    lengths = []
    try:
        for name, value in headers:
            if not (_HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value)):
                raise WrongReplyError(f"the header {name!r:.80}: {value!r:.80} is not valid")
            if name.lower() == b"content-length":
                lengths.append(value)
    except (TypeError, ValueError) as error:
        raise WrongReplyError(f"its headers are not pairs of bytes: {error}") from error
    return lengths
