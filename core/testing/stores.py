"""Fixtures and helpers that the tests of all stores share: opening a store, and an event loop for each test."""

from __future__ import annotations

import asyncio
import functools
import tempfile
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, Union, get_args, get_origin

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from .declared import built, declared


class Closable(Protocol):
    """Something with a `close` method."""

    async def close(self) -> None:
        """Release all resources."""


P = ParamSpec("P")
StoreT = TypeVar("StoreT", bound=Closable)
StructT = TypeVar("StructT", bound=msgspec.Struct)

Operation = tuple[str, Mapping[str, Any]]
"""Name of a method, and its arguments."""

drawn = settings(
    max_examples=30,
    deadline=None,  # a store may be slow, and the machine busy
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,  # each example has a folder of its own
        HealthCheck.differing_executors,  # several stores inherit the same test
        HealthCheck.too_slow,
    ],
)
"""Settings of hypothesis for the tests with drawn values."""


def on_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Turn a coroutine function into a test. Needs no pytest plugin for asyncio, and conflicts with none."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


class StoreTests(Generic[StoreT]):
    """The fixtures that the test class of a store overrides."""

    @pytest.fixture
    def open_store(self) -> Callable[[Path], StoreT]:
        """Return a function that opens the store of a folder.

        It is given an empty folder for a new store, and a folder again to reopen one that was closed. A store
        without a folder takes its path for a name.
        """
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture open_store")

    @pytest.fixture
    def survives_reopening(self, open_store: object) -> bool:
        """Return whether a store keeps its data when it is closed and its folder is opened again."""
        return declared(open_store, "survives_reopening", False)

    @pytest.fixture
    def lasting(self, survives_reopening: bool) -> None:
        """Skip the test if the store does not keep its data."""
        if not survives_reopening:
            pytest.skip(
                "the store does not have the capability survives_reopening (override the fixture if it has)"
            )


@asynccontextmanager
async def opened(open_store: Callable[[Path], StoreT], folder: Path) -> AsyncIterator[StoreT]:
    """Yield an open store, and close it afterwards."""
    store = await asyncio.to_thread(built, open_store, folder)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def fresh(open_store: Callable[[Path], StoreT], folder: Path) -> AsyncIterator[StoreT]:
    """Yield a new store, in a subfolder that is removed afterwards."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        async with opened(open_store, Path(name)) as store:
            yield store


async def outcome(call: Awaitable[Any]) -> Any:
    """Return the result of a call, or KeyError if it raises that."""
    try:
        return await call
    except KeyError:
        return KeyError


async def hold_together(
    open_store: Callable[[Path], StoreT],
    folder: Path,
    driven: Callable[[StoreT], Any],
    model: Any,
    operations: Sequence[Operation],
    *,
    reopening: bool,
) -> None:
    """Perform the same operations on a new store and on a model, and compare the results.

    Args:
        driven: function that wraps a store with the model's methods.
        reopening: whether the operation "reopen" reopens the store; if not, it does nothing.
    """
    with tempfile.TemporaryDirectory(dir=folder) as name:
        store = await asyncio.to_thread(built, open_store, Path(name))
        try:
            for method, arguments in operations:
                if method == "reopen":
                    if not reopening:
                        continue
                    await store.close()
                    store = await asyncio.to_thread(built, open_store, Path(name))
                expected = await outcome(getattr(model, method)(**arguments))
                found = await outcome(getattr(driven(store), method)(**arguments))
                assert found == expected, (method, arguments)
        finally:
            await store.close()


def any_of(methods: Mapping[str, Mapping[str, st.SearchStrategy[Any]]]) -> st.SearchStrategy[list[Operation]]:
    """Return a strategy for sequences of method calls with any of their arguments."""
    calls = [st.tuples(st.just(name), st.fixed_dictionaries(given)) for name, given in methods.items()]
    return st.lists(st.one_of(calls), min_size=10, max_size=60)


def structs(kind: type[StructT], **given: st.SearchStrategy[Any]) -> st.SearchStrategy[StructT]:
    """Return a strategy for structs with arbitrary values in all fields except the given ones."""
    values = {field.name: _values(field.type) for field in msgspec.structs.fields(kind)}
    return st.builds(kind, **values | given)


def _values(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a field's type."""
    arguments = get_args(kind)
    if get_origin(kind) in (Union, types.UnionType):
        return st.one_of(*map(_values, arguments))
    if get_origin(kind) is tuple:
        return st.lists(_values(arguments[0]), max_size=3).map(tuple)
    if get_origin(kind) is Mapping:
        return st.dictionaries(*map(_values, arguments), max_size=3)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return structs(kind)
    plain: dict[Any, st.SearchStrategy[Any]] = {
        str: st.text(st.characters(codec="utf-8"), max_size=20),
        int: st.integers(0, 2**53),
        float: st.floats(0, 2**40),
        bytes: st.binary(max_size=20),
        types.NoneType: st.none(),
        bool: st.booleans(),
    }
    return plain[kind]
