"""Creates a subclass of a component's class that records calls of its interface's methods in `ComponentCalls`.

Nothing else changes, so callers see no difference.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from types import FunctionType, new_class
from typing import Any, TypeVar

from llmfw.core.interfaces.batch_store import BatchResults, BatchStore, LineResult

from .calls import ComponentCalls

ComponentT = TypeVar("ComponentT")


def guarded(
    component: type[ComponentT], interface: type, calls: ComponentCalls, *, per_request: bool = False
) -> type[ComponentT]:
    """Return a subclass of a component that behaves the same and records the calls of the interface's methods.

    Args:
        interface: interface of the component.
        calls: record of the component's calls.
        per_request: whether objects are built while a request is served, so that building one is a call, too.
    """
    methods = {}
    for name, declared in vars(interface).items():
        is_call = isinstance(declared, FunctionType) and (
            not name.startswith("_") or (per_request and name == "__init__")
        )
        if not is_call:
            continue
        own = inspect.getattr_static(component, name, None)
        # Methods of the interface itself are not the component's work; abstract ones cannot be called.
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
    """Return a wrapper of a method that records its calls; `declared` is the interface's method."""
    if inspect.iscoroutinefunction(declared):

        @functools.wraps(own)
        async def waiting(self: object, *args: Any, **kwargs: Any) -> Any:
            return await calls.wait(own, self, *args, **kwargs)

        return waiting
    if str(declared.__annotations__.get("return", "")).startswith("AsyncIterator"):

        @functools.wraps(own)
        def iterating(self: object, *args: Any, **kwargs: Any) -> Any:
            return calls.iterate(own, self, *args, **kwargs)

        return iterating
    if declared is BatchStore.results:

        @functools.wraps(own)
        def results(self: object, *args: Any, **kwargs: Any) -> Any:
            return _GuardedResults(calls.call(own, self, *args, **kwargs), calls)

        return results

    return functools.wraps(own)(calls.watched(own))


class _GuardedResults(BatchResults):
    """The results of a job, in a store whose calls are recorded."""

    def __init__(self, made: BatchResults, calls: ComponentCalls) -> None:
        self._made = made
        self._calls = calls

    async def add(self, results: Sequence[LineResult]) -> None:
        await self._calls.wait(self._made.add, results)

    async def done(self) -> Collection[int]:
        return await self._calls.wait(self._made.done)

    def lines(self, *, failed: bool) -> AsyncIterator[Sequence[bytes]]:
        return self._calls.iterate(self._made.lines, failed=failed)
