"""The calls of chosen parts while requests are served: how long they took, and whose fault it was.

Everything that the API and the engine ask of a plugin's part goes through the part's `PartCalls`. What a part raises
on purpose (a `RequestError`, a `StorageError`, …) comes through; anything else is logged once, with the plugin, its
package and version, and becomes a `PartFailedError`, which ends the request and nothing else. A part that calls its own
methods is one call. This module knows nothing of what parts do.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextvars import ContextVar
from functools import partial
from threading import get_ident
from time import perf_counter
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from llmfw.core.base.errors import (
    DeadlineError,
    EngineError,
    OverloadedError,
    PartError,
    PartFailedError,
    RequestError,
    StorageError,
)
from llmfw.core.base.request import PartUse

if TYPE_CHECKING:
    from .registry import Entry

ArgsT = ParamSpec("ArgsT")
FoundT = TypeVar("FoundT")

MEANT = (RequestError, StorageError, OverloadedError, DeadlineError, EngineError, PartFailedError)
"""What a part may raise to say something about the request."""

STORES = frozenset({"file_store", "batch_store", "response_store"})
"""Kinds of parts that say by a KeyError that there is nothing of that id."""

_inside: ContextVar[bool] = ContextVar("inside a part", default=False)
_starting: ContextVar[bool] = ContextVar("the server starts", default=False)


@contextlib.contextmanager
def as_the_server_starts() -> Iterator[None]:
    """Have whatever a part raises meanwhile end the server: as a PartError that says all there is to say.

    There is no request whose fault it could be, and nobody who could do without the part.
    """
    token = _starting.set(True)
    try:
        yield
    finally:
        _starting.reset(token)


class PartCalls:
    """The calls of one part in this process.

    Args:
        entry: the part.

    Attributes:
        seconds: that they took. (Added to without a lock: between reading and writing it no other thread comes in.)
        count, failures: how many there were, and how many of them failed.
    """

    __slots__ = ("_meant", "_thread", "count", "entry", "failures", "seconds")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.seconds = 0.0
        self.count = 0
        self.failures = 0
        self._thread = 0  # that runs a function which does not wait; of several, the last one
        self._meant = (*MEANT, KeyError) if entry.kind in STORES else MEANT

    def timed(
        self, function: Callable[ArgsT, FoundT], /, *args: ArgsT.args, **kwargs: ArgsT.kwargs
    ) -> FoundT:
        """Call a function of the part, whose exceptions somebody else looks after (see `failed`)."""
        begun = perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            took = perf_counter() - begun
            self.seconds += took
            self.count += 1

    def watched(self, function: Callable[ArgsT, FoundT]) -> Callable[ArgsT, FoundT]:
        """Return a function that does as one of the part's, and raises PartFailedError for what it should not raise.

        Called for each token of each request: all that it needs is at hand.
        """
        meant, failed, where = self._meant, self.failed, _name_of(function)

        def watching(*args: ArgsT.args, **kwargs: ArgsT.kwargs) -> FoundT:
            thread = get_ident()
            if self._thread == thread:  # the part has called itself
                return function(*args, **kwargs)
            self._thread = thread
            begun = perf_counter()
            try:
                return function(*args, **kwargs)
            except meant:
                raise
            except (Exception, SystemExit) as error:  # whatever a foreign part raises is the cause to log
                raise failed(error, where) from error
            finally:
                took = perf_counter() - begun
                self.seconds += took
                self.count += 1
                self._thread = 0

        return watching

    def call(self, function: Callable[ArgsT, FoundT], /, *args: ArgsT.args, **kwargs: ArgsT.kwargs) -> FoundT:
        """Call a function of the part.

        Raises:
            PartFailedError: it raised what it should not.
        """
        return self.watched(function)(*args, **kwargs)

    async def wait(
        self, function: Callable[ArgsT, Awaitable[FoundT]], /, *args: ArgsT.args, **kwargs: ArgsT.kwargs
    ) -> FoundT:
        """Call a coroutine function of the part, as `call` does.

        Iterators and functions among the arguments are ours: their time is not the part's, nor what they raise.
        """
        lent = _Lent()
        borrow: Any = function
        try:
            with self._asked(_name_of(function), lent):
                found: FoundT = await borrow(
                    *map(lent.wrap, args), **{name: lent.wrap(value) for name, value in kwargs.items()}
                )
                return found
        finally:
            await lent.close()

    async def iterate(
        self, function: Callable[ArgsT, AsyncIterator[FoundT]], /, *args: ArgsT.args, **kwargs: ArgsT.kwargs
    ) -> AsyncGenerator[FoundT, None]:
        """Call a function of the part that returns an asynchronous iterator, and yield what that one does."""
        items = self.call(function, *args, **kwargs)
        try:
            while True:
                with self._asked(_name_of(function)):
                    try:
                        item = await anext(items)
                    except StopAsyncIteration:
                        return
                yield item
        finally:
            if isinstance(items, AsyncGenerator):
                await items.aclose()

    def failed(self, error: BaseException, where: str) -> PartFailedError:
        """Take note of a failure, and log it; return the error that ends the request.

        Args:
            where: the name of the function that raised.
        """
        import logging  # the command line starts without it

        self.failures += 1
        logging.getLogger(__name__).error(
            "%s failed in %s: %s: %s", self.entry, where, type(error).__name__, error, exc_info=error
        )
        return PartFailedError(f"{self.entry.spoken} failed on this request; the server's log says why")

    def _failed_at_start(self, error: BaseException, where: str) -> PartError:
        return PartError(
            f"{self.entry} failed in {where} as the server started: {type(error).__name__}: {error}"
        )

    def use(self) -> PartUse:
        """Return what the calls came to so far."""
        entry = self.entry
        return PartUse(entry.kind, entry.name, entry.plugin, self.seconds, self.count, self.failures)

    @contextlib.contextmanager
    def _asked(self, where: str, lent: _Lent | None = None) -> Iterator[None]:
        if _inside.get():
            yield
            return
        token = _inside.set(True)
        begun = perf_counter()
        try:
            yield
        except self._meant as error:
            if _starting.get():
                raise self._failed_at_start(error, where) from error
            raise
        except (Exception, SystemExit) as error:
            if lent is not None and error is lent.error:
                raise
            failed = self._failed_at_start if _starting.get() else self.failed
            raise failed(error, where) from error
        finally:
            _inside.reset(token)
            took = perf_counter() - begun - (lent.seconds if lent else 0.0)
            self.seconds += took
            self.count += 1


class PartLedger:
    """The calls of all parts in use, by part. One for each registry."""

    def __init__(self) -> None:
        self._calls: dict[Entry, PartCalls] = {}

    def of(self, entry: Entry) -> PartCalls:
        """Return the calls of a part."""
        return self._calls.setdefault(entry, PartCalls(entry))

    def uses(self) -> list[PartUse]:
        """Return what the calls of each part came to so far."""
        return [calls.use() for calls in list(self._calls.values())]


class _Lent:
    """What a part is lent for one call: iterators and functions of ours.

    Attributes:
        seconds: that they took.
        error: what one of them raised.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.error: BaseException | None = None
        self._iterators: list[AsyncGenerator[Any, None]] = []

    def wrap(self, value: Any) -> Any:
        """Return an argument as the part is to have it."""
        if isinstance(value, AsyncIterator):
            self._iterators.append(self._iterate(value))
            return self._iterators[-1]
        if isinstance(value, FunctionType | MethodType | partial):
            return partial(self._call, value)
        return value

    async def close(self) -> None:
        """Close the iterators, which a part may not have read to their ends."""
        for iterator in self._iterators:
            await iterator.aclose()

    async def _iterate(self, items: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        while True:
            with self._ours():
                try:
                    item = await anext(items)
                except StopAsyncIteration:
                    return
            yield item

    def _call(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        with self._ours():
            return function(*args, **kwargs)

    @contextlib.contextmanager
    def _ours(self) -> Iterator[None]:
        token = _inside.set(False)
        begun = perf_counter()
        try:
            yield
        except BaseException as error:
            self.error = error
            raise
        finally:
            _inside.reset(token)
            self.seconds += perf_counter() - begun


def _name_of(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__name__', type(function).__name__)}()"
