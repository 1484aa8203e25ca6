"""Creates subclasses of component classes that record and check the calls of interface methods.

A call fails if it raises an unexpected exception, returns a wrong value, or breaks a rule of the interface.
`ComponentCalls` counts and logs the failure, and raises its own error instead. Apart from that, a subclass
behaves like the component's own class.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from types import FunctionType, new_class
from typing import Any, TypeVar

from llmfw.core.interfaces.batch_store import BatchResults, BatchStore, LineResult
from llmfw.core.interfaces.file_store import Describe, FileStore
from llmfw.core.interfaces.parsers import ToolParser

from .agreement import PutArguments, agreement_of, check_lines
from .call_order import in_order
from .calls import ComponentCalls
from .returned import Check, WrongReturnError, check_of

ComponentT = TypeVar("ComponentT")


def guarded(
    component: type[ComponentT], interface: type, calls: ComponentCalls, *, per_request: bool = False
) -> type[ComponentT]:
    """Return a subclass of a component's class that records the calls of the interface's methods.

    Args:
        component: class of the component.
        interface: interface that the class implements.
        calls: records the component's calls.
        per_request: whether objects are built for each request, so that the constructor's calls are recorded,
            too.
    """
    methods = {}
    for name, declared in vars(interface).items():
        is_call = isinstance(declared, FunctionType) and (
            not name.startswith("_") or (per_request and name == "__init__")
        )
        if not is_call:
            continue
        own = inspect.getattr_static(component, name, None)
        # Methods inherited from the interface are not the component's code; abstract methods cannot be called.
        if own is not declared and isinstance(own, FunctionType) and not hasattr(own, "__isabstractmethod__"):
            methods[name] = _watched(own, declared, calls)
    about = {
        "__module__": component.__module__,
        "__qualname__": component.__qualname__,
        "__doc__": component.__doc__,
    }
    found: type[ComponentT] = new_class(
        component.__name__, (component,), exec_body=lambda body: body.update(methods | about)
    )
    return found


def _watched(own: FunctionType, declared: FunctionType, calls: ComponentCalls) -> Callable[..., Any]:
    """Return a wrapper of a method that records the method's calls.

    Args:
        own: method of the component's class.
        declared: the same method in the interface, which determines whether calls return a coroutine or an
            iterator.
    """
    check = check_of(declared)
    if inspect.iscoroutinefunction(declared):
        if declared is FileStore.put:
            return _watched_put(own, check, calls)

        @functools.wraps(own)
        async def waiting(self: object, *args: Any, **kwargs: Any) -> Any:
            agreement = agreement_of(declared, (self, *args), kwargs)
            checked = check if agreement is None else functools.partial(_check_all, (check, agreement))
            return await calls.wait_checked(checked, own, self, *args, **kwargs)

        return waiting
    if str(declared.__annotations__.get("return", "")).startswith("AsyncIterator"):
        if declared is FileStore.read:
            return _watched_read(own, check, calls)

        @functools.wraps(own)
        def iterating(self: object, *args: Any, **kwargs: Any) -> Any:
            return calls.iterate_checked(check, own, self, *args, **kwargs)

        return iterating
    if declared is BatchStore.results:

        @functools.wraps(own)
        def results(self: object, *args: Any, **kwargs: Any) -> Any:
            return _GuardedResults(calls.call(own, self, *args, **kwargs), calls)

        return results

    if declared in (ToolParser.feed, ToolParser.finish):
        return functools.wraps(own)(calls.watched(in_order(own, check)))
    return functools.wraps(own)(calls.watched(own, check))


def _watched_put(own: FunctionType, check: Check | None, calls: ComponentCalls) -> Callable[..., Any]:
    """Return a wrapper of `FileStore.put`, which also checks how the store uses its arguments."""

    @functools.wraps(own)
    async def put(self: object, chunks: AsyncIterator[bytes], describe: Describe) -> Any:
        used = PutArguments(chunks, describe, lambda error: calls.failed(error, "put()"))
        checked = functools.partial(_check_all, (check, used.check))
        return await calls.wait_checked(checked, own, self, used.chunks(), used.describe)

    return put


def _watched_read(own: FunctionType, check: Check | None, calls: ComponentCalls) -> Callable[..., Any]:
    """Return a wrapper of `FileStore.read`, which also counts the bytes."""

    @functools.wraps(own)
    async def read(
        self: object, file_id: str, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        pieces, size = calls.iterate_checked(check, own, self, file_id, start, end), 0
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                size += len(piece)
                if end is not None and size > end - start:
                    break
                yield piece
        if end is not None and size != end - start:
            error = WrongReturnError(
                f"did not yield the {end - start} bytes from {start} to {end} of {file_id!r:.80}"
            )
            raise calls.failed(error, "read()")

    return read


def _check_all(checks: Sequence[Check | None], value: Any) -> None:
    for check in checks:
        if check is not None:
            check(value)


class _GuardedResults(BatchResults):
    """Wrapper of a job's results. Records calls of the results as calls of the store."""

    def __init__(self, made: BatchResults, calls: ComponentCalls) -> None:
        self._made = made
        self._calls = calls

    async def add(self, results: Sequence[LineResult]) -> None:
        await self._calls.wait(self._made.add, results)

    async def done(self) -> Collection[int]:
        return await self._calls.wait_checked(check_of(BatchResults.done), self._made.done)

    def lines(self, *, failed: bool) -> AsyncIterator[Sequence[bytes]]:
        checked = functools.partial(_check_all, (check_of(BatchResults.lines), check_lines))
        return self._calls.iterate_checked(checked, self._made.lines, failed=failed)
