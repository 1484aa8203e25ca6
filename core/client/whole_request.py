"""The client request that is being answered. It may consist of several requests to the engine."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token


class WholeRequest:
    """A request of a client, from its arrival until its reply has been sent.

    Context manager: the engine requests of the block, and of tasks that the block starts, belong to it.

    Attributes:
        is_open: whether the reply has not been sent yet, so that more parts may come.
        estimated_s: longest router estimate of the seconds until a part's prompt is computed; None: no
            estimate.
    """

    def __init__(self) -> None:
        self.is_open = True
        self.estimated_s: float | None = None
        self._at_end: list[Callable[[], None]] = []
        self._outer: Token[WholeRequest | None] | None = None

    def __enter__(self) -> None:
        self._outer = _current.set(self)

    def __exit__(self, *error: object) -> None:
        assert self._outer is not None
        _current.reset(self._outer)
        self._outer = None  # it refers to the context, and the context to this object
        self.end()

    def at_end(self, call: Callable[[], None]) -> None:
        """Call a function at the end of the request."""
        self._at_end.append(call)

    def note_estimate(self, seconds: float) -> None:
        """Record the router's estimate for a part."""
        self.estimated_s = max(seconds, self.estimated_s or 0.0)

    def end(self) -> None:
        """Note that the reply has been sent."""
        self.is_open = False
        # A call may refer to this object. If this object kept the call, both would wait for the garbage collector.
        calls, self._at_end = self._at_end, []
        for call in calls:
            call()


_current: ContextVar[WholeRequest | None] = ContextVar("whole_request", default=None)


def whole_request() -> AbstractContextManager[None]:
    """Group the engine requests of the block, and of tasks that the block starts, into one client request."""
    return WholeRequest()


def open_whole_request() -> WholeRequest | None:
    """Return the caller's current client request; None if there is none, or its reply has been sent."""
    whole = _current.get()
    return whole if whole is not None and whole.is_open else None
