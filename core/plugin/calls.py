"""Records the duration and the failures of calls to components while requests are served.

All calls that the API and the engine make to a plugin's component go through the component's
`ComponentCalls`. Exceptions that a component raises on purpose (a `RequestError`, a `StorageError`, …) pass
through. Any other exception is logged once, with the plugin, its package and version, and becomes a
`ComponentFailedError`, which ends only the request. Calls that a component makes to its own methods are not
counted. Independent of what the components do.
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

from llmfw.core.base.described import described
from llmfw.core.base.disarm import disarm, readable
from llmfw.core.base.engine_info import ComponentUse
from llmfw.core.base.errors import (
    ComponentError,
    ComponentFailedError,
    CrashingRequestError,
    DeadlineError,
    EngineDeadError,
    EngineError,
    OverloadedError,
    RequestError,
    StorageError,
)
from llmfw.core.base.histogram import CALL_BOUNDS, Histogram

from .containment import current_task, raise_if_process_ends, raise_if_task_ends
from .returned import Check

if TYPE_CHECKING:
    from .registry import Entry

ArgsT = ParamSpec("ArgsT")
FoundT = TypeVar("FoundT")

EXPECTED_ERRORS = (
    RequestError,
    StorageError,
    OverloadedError,
    DeadlineError,
    EngineError,
    ComponentFailedError,
)
"""Exceptions that a component may raise on purpose, about the request."""
_OF_CLIENTS = (EngineDeadError, CrashingRequestError)
"""The EXPECTED_ERRORS that only the client of an engine may raise. If a component raised one, it would be
taken for the end of the engine, and the request would run again without end.
"""

STORES = frozenset({"file_store", "batch_store", "response_store"})
"""Kinds of components that raise KeyError for an unknown id."""

_WITHOUT_ID = frozenset({"put()", "create()", "list()", "expired()", "unfinished()", "purge()", "close()"})
"""Methods of stores that take no id, so that a KeyError is a defect."""

SLOW_S = 1.0
"""Duration of a synchronous call in seconds, above which a warning is logged."""

WARN_EVERY_S = 60.0

_inside: ContextVar[bool] = ContextVar("inside a component", default=False)
_starting: ContextVar[bool] = ContextVar("the server starts", default=False)


def _is_meant(error: BaseException, meant: tuple[type[BaseException], ...]) -> bool:
    kind = type(error)  # `isinstance` would read `__class__`, which may run the plugin's code and raise
    return issubclass(kind, meant) and not issubclass(kind, _OF_CLIENTS)


@contextlib.contextmanager
def as_the_server_starts() -> Iterator[None]:
    """Convert any exception of a component in the block to a ComponentError with the full reason.

    While the server starts, no request can be the cause, and the server cannot run without the component.
    """
    token = _starting.set(True)
    try:
        yield
    finally:
        _starting.reset(token)


class ComponentCalls:
    """Calls one component in this process, and records the number, duration and failures of the calls.

    Args:
        entry: the component.

    Attributes:
        seconds: total duration of the calls. (Updated without a lock: no other thread runs between the read
            and the write.)
        count, failures: number of calls, and of failed calls.
        dropped: number of events that an observer did not get.
        latency: durations of the calls, of a store; None for other components, which may be called for each token.
        refused: number of calls that a store ended with a `StorageError`.
    """

    __slots__ = (
        "_meant",
        "_next_warning",
        "_thread",
        "count",
        "dropped",
        "entry",
        "failures",
        "latency",
        "refused",
        "seconds",
    )

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.seconds = 0.0
        self.count = 0
        self.failures = 0
        self.dropped = 0
        self.refused = 0
        self.latency = Histogram.empty(CALL_BOUNDS) if entry.kind in STORES else None
        self._next_warning = 0.0
        self._thread = 0  # thread in a synchronous call; the last one if several are
        self._meant = (*EXPECTED_ERRORS, KeyError) if entry.kind in STORES else EXPECTED_ERRORS

    def timed(
        self, function: Callable[ArgsT, FoundT], /, *args: ArgsT.args, **kwargs: ArgsT.kwargs
    ) -> FoundT:
        """Call a function of the component, and record the duration.

        The caller must handle exceptions (see `failed`).
        """
        begun = perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            self._record(perf_counter() - begun)

    def watched(
        self, function: Callable[ArgsT, FoundT], check: Check | None = None
    ) -> Callable[ArgsT, FoundT]:
        """Wrap a component's function so that unexpected exceptions become ComponentFailedError.

        The wrapper is called for each token of each request. So this method does all look-ups in advance.

        Args:
            check: check of the returned value; a wrong value is a failure.
        """
        meant, failed, where = self._meant, self.failed, _name_of(function)

        def watching(*args: ArgsT.args, **kwargs: ArgsT.kwargs) -> FoundT:
            thread = get_ident()
            if self._thread == thread:  # the component has called itself
                return function(*args, **kwargs)
            self._thread = thread
            begun = perf_counter()
            try:
                found = function(*args, **kwargs)
                if check is not None:
                    check(found)
                return found
            except BaseException as error:  # a plugin may raise anything; it is logged
                raise_if_process_ends(error)
                if _is_meant(error, meant):
                    raise
                error = readable(error)
                raise failed(error, where) from error
            finally:
                self._record(perf_counter() - begun)
                self._thread = 0

        return watching

    def call(self, function: Callable[ArgsT, FoundT], /, *args: ArgsT.args, **kwargs: ArgsT.kwargs) -> FoundT:
        """Call a function of the component.

        Raises:
            ComponentFailedError: the function raised an unexpected exception.
        """
        return self.watched(function)(*args, **kwargs)

    async def wait(
        self, function: Callable[ArgsT, Awaitable[FoundT]], /, *args: ArgsT.args, **kwargs: ArgsT.kwargs
    ) -> FoundT:
        """Call a coroutine function of the component, as `call` does."""
        return await self.wait_checked(None, function, *args, **kwargs)

    async def wait_checked(
        self,
        check: Check | None,
        function: Callable[ArgsT, Awaitable[FoundT]],
        /,
        *args: ArgsT.args,
        **kwargs: ArgsT.kwargs,
    ) -> FoundT:
        """Call a coroutine function of the component, and check the returned value.

        Iterators and functions among the arguments are the caller's. Their time and exceptions are not
        attributed to the component.
        """
        caller = _CallerArguments()
        borrow: Any = function
        try:
            with self._asked(_name_of(function), caller):
                found: FoundT = await borrow(
                    *map(caller.wrap, args), **{name: caller.wrap(value) for name, value in kwargs.items()}
                )
                if check is not None:
                    check(found)
                return found
        finally:
            await caller.close()

    def iterate(
        self, function: Callable[ArgsT, AsyncIterator[FoundT]], /, *args: ArgsT.args, **kwargs: ArgsT.kwargs
    ) -> AsyncGenerator[FoundT, None]:
        """Yield the items of an asynchronous iterator that a function of the component returns."""
        return self.iterate_checked(None, function, *args, **kwargs)

    async def iterate_checked(
        self,
        check: Check | None,
        function: Callable[ArgsT, AsyncIterator[FoundT]],
        /,
        *args: ArgsT.args,
        **kwargs: ArgsT.kwargs,
    ) -> AsyncGenerator[FoundT, None]:
        """Yield the items of an asynchronous iterator that a function returns, and check each of them."""
        items = self.call(function, *args, **kwargs)
        try:
            while True:
                with self._asked(_name_of(function)):
                    try:
                        item = await anext(items)
                    except StopAsyncIteration:
                        return
                    if check is not None:
                        check(item)
                yield item
        finally:
            if isinstance(items, AsyncGenerator):
                await items.aclose()

    def _record(self, seconds: float) -> None:
        """Count a synchronous call; log a call that took longer than SLOW_S, at most one in WARN_EVERY_S."""
        self.seconds += seconds
        self.count += 1
        if seconds > SLOW_S and perf_counter() >= self._next_warning:
            import logging  # the command line starts without it

            self._next_warning = perf_counter() + WARN_EVERY_S
            logging.getLogger(__name__).warning(
                "%s took %.1f s in one call; others may have waited for it", self.entry, seconds
            )

    def failed(self, error: BaseException, where: str) -> ComponentFailedError:
        """Record and log a failure; return the error that ends the request.

        Args:
            where: name of the function that raised.
        """
        import logging  # the command line starts without it

        self.failures += 1
        logging.getLogger(__name__).error(
            "%s failed in %s: %s", self.entry, where, described(error), exc_info=readable(error)
        )
        return ComponentFailedError(f"{self.entry.spoken} failed on this request; the server's log says why")

    def _failed_at_start(self, error: BaseException, where: str) -> ComponentError:
        return ComponentError(f"{self.entry} failed in {where} as the server started: {described(error)}")

    def use(self) -> ComponentUse:
        """Return the totals of the calls since start."""
        entry = self.entry
        return ComponentUse(
            entry.kind,
            entry.name,
            entry.plugin,
            self.seconds,
            self.count,
            self.failures,
            self.dropped,
            self.latency,
            self.refused,
        )

    @contextlib.contextmanager
    def _asked(self, where: str, caller: _CallerArguments | None = None) -> Iterator[None]:
        if _inside.get():
            yield
            return
        token, task = _inside.set(True), current_task()
        begun = perf_counter()
        try:
            yield
        except BaseException as error:
            disarm(error)
            is_meant = _is_meant(error, self._meant) and not (
                issubclass(type(error), KeyError) and where in _WITHOUT_ID
            )
            if is_meant and not _starting.get():
                self.refused += issubclass(type(error), StorageError)
                raise
            raise_if_task_ends(error, task)
            if caller is not None and error is caller.error and not is_meant:
                raise
            failed = self._failed_at_start if _starting.get() else self.failed
            error = readable(error)
            raise failed(error, where) from error
        finally:
            _inside.reset(token)
            took = perf_counter() - begun - (caller.seconds if caller else 0.0)
            self.seconds += took
            self.count += 1
            if self.latency is not None:
                self.latency.add(took)


class ComponentLedger:
    """The `ComponentCalls` of all components in use. Each registry has one ledger."""

    def __init__(self) -> None:
        self._calls: dict[Entry, ComponentCalls] = {}

    def of(self, entry: Entry) -> ComponentCalls:
        """Return the `ComponentCalls` of a component."""
        return self._calls.setdefault(entry, ComponentCalls(entry))

    def uses(self) -> list[ComponentUse]:
        """Return the totals of each component's calls since start."""
        return [calls.use() for calls in list(self._calls.values())]


class _CallerArguments:
    """The iterators and functions that a caller passes to a component in one call.

    Attributes:
        seconds: total time that these iterators and functions took.
        error: exception that one of them raised.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.error: BaseException | None = None
        self._iterators: list[AsyncGenerator[Any, None]] = []

    def wrap(self, value: Any) -> Any:
        """Wrap an argument that is an iterator or a function; return any other argument unchanged."""
        if isinstance(value, AsyncIterator):
            self._iterators.append(self._iterate(value))
            return self._iterators[-1]
        if isinstance(value, FunctionType | MethodType | partial):
            return partial(self._call, value)
        return value

    async def close(self) -> None:
        """Close the iterators, which the component may not have read to the end."""
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
