"""Helpers for tests of stores: fixtures, opening and closing, event loops, and random operations."""

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
    """An object that must be closed after use."""

    async def close(self) -> None:
        """Release all resources."""


P = ParamSpec("P")
StoreT = TypeVar("StoreT", bound=Closable)
StructT = TypeVar("StructT", bound=msgspec.Struct)

Operation = tuple[str, Mapping[str, Any]]
"""(name of a method, its arguments)."""

drawn = settings(
    max_examples=30,
    deadline=None,  # a store may be slow, and the machine busy
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,  # each example uses a new folder
        HealthCheck.differing_executors,  # several stores inherit the same test
        HealthCheck.too_slow,
    ],
)
"""Hypothesis settings for the property-based tests."""


def on_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Turn a coroutine function into a test that runs in a new event loop.

    Works with and without pytest plugins for asyncio.
    """

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


class StoreTests(Generic[StoreT]):
    """Base class of stores' conformance tests, with the fixtures to override."""

    @pytest.fixture
    def open_store(self) -> Callable[[Path], StoreT]:
        """Return a function that opens the store in a folder.

        Tests pass an empty folder to create a store, and the same folder again to reopen the store after
        closing it. A store that does not use folders may use the path as a name.
        """
        raise NotImplementedError(f"{type(self).__name__} has to override the fixture open_store")

    @pytest.fixture
    def survives_reopening(self, open_store: object) -> bool:
        """Return whether a store keeps its contents when it is closed and its folder is opened again."""
        return declared(open_store, "survives_reopening", False)

    @pytest.fixture
    def lasting(self, survives_reopening: bool) -> None:
        """Skip the test if the store does not survive reopening."""
        if not survives_reopening:
            pytest.skip(
                "the store does not have the capability survives_reopening (override the fixture if it has)"
            )


@asynccontextmanager
async def opened(open_store: Callable[[Path], StoreT], folder: Path) -> AsyncIterator[StoreT]:
    """Context manager that opens a store, and closes it afterwards."""
    store = await asyncio.to_thread(built, open_store, folder)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def fresh(open_store: Callable[[Path], StoreT], folder: Path) -> AsyncIterator[StoreT]:
    """Context manager that opens a new store in a temporary subfolder of `folder`.

    Afterwards, it closes the store and removes the subfolder.
    """
    with tempfile.TemporaryDirectory(dir=folder) as name:
        async with opened(open_store, Path(name)) as store:
            yield store


async def outcome(call: Awaitable[Any]) -> Any:
    """Return the result of a call, or the class KeyError if the call raises KeyError."""
    try:
        return await call
    except KeyError:
        return KeyError


def assert_complete(found: Sequence[str], expected: Sequence[str]) -> None:
    """Assert that a long listing has the expected ids, in their order."""
    missing = [id for id in expected if id not in found]
    assert not missing, f"{len(missing)} of {len(expected)} ids are missing; the first one is {missing[0]}"
    assert [*found] == [*expected]


async def assert_same_results(
    open_store: Callable[[Path], StoreT],
    folder: Path,
    adapt: Callable[[StoreT], Any],
    model: Any,
    operations: Sequence[Operation],
    *,
    reopening: bool,
) -> None:
    """Run the same operations on a new store and on a reference model, and assert that the results are equal.

    Args:
        open_store: function that opens a store in a folder.
        folder: folder for a temporary folder of the store.
        adapt: function that wraps a store in the model's methods.
        model: reference model.
        operations: operations to run, in order.
        reopening: whether the operation "reopen" closes and reopens the store. If False, the operation is
            skipped.
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
                found = await outcome(getattr(adapt(store), method)(**arguments))
                assert found == expected, (method, arguments)
        finally:
            await store.close()


def any_of(methods: Mapping[str, Mapping[str, st.SearchStrategy[Any]]]) -> st.SearchStrategy[list[Operation]]:
    """Return a strategy for lists of calls of these methods, with arguments from the given strategies."""
    calls = [st.tuples(st.just(name), st.fixed_dictionaries(given)) for name, given in methods.items()]
    return st.lists(st.one_of(calls), min_size=10, max_size=60)


def structs(kind: type[StructT], **given: st.SearchStrategy[Any]) -> st.SearchStrategy[StructT]:
    """Return a strategy for structs of a class.

    Fields without a given strategy have any values of their types.
    """
    values = {field.name: _values(field.type) for field in msgspec.structs.fields(kind)}
    return st.builds(kind, **values | given)


def _values(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a type."""
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
