"""Conformance tests of the `ResponseStore` interface."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.core.interfaces.response_store import ResponseRecord, ResponseStore

from .declared import built
from .resources import assert_loop_stays_free
from .response_model import MAX_BYTES, OPERATIONS, ResponseModel, object_of, response
from .stores import (
    Operation,
    StoreTests,
    assert_complete,
    drawn,
    fresh,
    on_a_loop,
    opened,
    outcome,
    structs,
)

MIB = 2**20
STRANGE_IDS = (
    *("", "resp_2", "resp_1\0", "../resp_1", "\udcff", "%", "é" * 500),
    *("RESP_1", "Resp_1", " resp_1", "resp_1 ", "\tresp_1\n", "resp_1/", "resp_%", "resp__", "resp_01"),
    *("resp_１", "ｒesp_1", "resp_1\u200b", "resp_", "resp_11", "1", "0", "None"),
)
"""Ids of no response, of which some become `resp_1` if they are put in order."""

MANY = 150

values = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text()
objects = st.dictionaries(st.text(), values, max_size=4).map(lambda value: json.dumps(value).encode())
lists = st.lists(values, max_size=4).map(lambda value: json.dumps(value, ensure_ascii=False).encode())

OpenResponses = Callable[[Path, int], ResponseStore]
Open = Callable[[Path], ResponseStore]


class ResponseStoreTests(StoreTests[ResponseStore]):
    """Conformance tests of a response store.

    Derive from this class and override the fixture `open_store`, and `survives_reopening` if the store keeps
    its contents when it is closed. `open_store` must return a function that takes the folder and the store's
    capacity in bytes.
    """

    @pytest.fixture
    def open_large(self, open_store: Any) -> Open:
        """Return a function that opens a store in a folder, with capacity for everything that a test puts."""
        return lambda folder: _open(open_store, folder, MIB)

    @pytest.fixture
    def open_small(self, open_store: Any) -> Open:
        """Return a function that opens a store in a folder, with a capacity of 100 bytes."""
        return lambda folder: _open(open_store, folder, MAX_BYTES)

    @given(
        record=structs(
            ResponseRecord, id=st.just("resp_1"), previous=st.none(), response=objects, input=lists
        )
    )
    @drawn
    @on_a_loop
    async def test_a_response_keeps_every_field(
        self, open_large: Open, tmp_path: Path, record: ResponseRecord
    ) -> None:
        async with fresh(open_large, tmp_path) as store:
            await store.put(record)
            assert await store.get(record.id) == record
            assert [*await store.conversation(record.id)] == [record]

    @on_a_loop
    async def test_a_response_replaces_one_with_its_id(self, open_large: Open, tmp_path: Path) -> None:
        async with opened(open_large, tmp_path) as store:
            await store.put(response(status="queued"))
            await store.put(response("resp_2", "resp_1"))
            for status in ("in_progress", "completed"):
                changed = response(status=status, response=b'{"status":"%s"}' % status.encode(), input=b"[1]")
                await store.put(changed)
                assert await store.get("resp_1") == changed
                assert [*await store.conversation("resp_2")] == [changed, response("resp_2", "resp_1")]

    @pytest.mark.parametrize("id", STRANGE_IDS, ids=ascii)
    @on_a_loop
    async def test_an_unknown_id_raises_key_error(self, open_large: Open, tmp_path: Path, id: str) -> None:
        async with opened(open_large, tmp_path) as store:
            await store.put(response())
            assert await outcome(store.get(id)) is KeyError
            assert await outcome(store.delete(id)) is KeyError
            assert await outcome(store.conversation(id)) is KeyError
            assert await store.get("resp_1") == response()

    @on_a_loop
    async def test_a_conversation_is_one_branch_in_order(self, open_large: Open, tmp_path: Path) -> None:
        """The first turn is returned first, without the turns of other branches."""
        async with opened(open_large, tmp_path) as store:
            # resp_1 ── resp_3 ── resp_5
            #    └───── resp_4              resp_2
            turns = [
                response("resp_1", created_at=9.0),
                response("resp_2"),
                response("resp_3", "resp_1", created_at=5.0),
                response("resp_4", "resp_1", created_at=7.0),
                response("resp_5", "resp_3", created_at=6.0),
            ]
            for turn in turns:
                await store.put(turn)
            assert [*await store.conversation("resp_5")] == [turns[0], turns[2], turns[4]]
            assert [*await store.conversation("resp_4")] == [turns[0], turns[3]]
            assert [*await store.conversation("resp_2")] == [turns[1]]

    @on_a_loop
    async def test_a_long_conversation_is_returned_completely(self, open_large: Open, tmp_path: Path) -> None:
        async with opened(open_large, tmp_path) as store:
            turns = [
                response(f"resp_{number}", f"resp_{number - 1}" if number else None, created_at=float(number))
                for number in range(MANY)
            ]
            for turn in turns:
                await store.put(turn)
            assert [*await store.conversation(turns[-1].id)] == turns
            assert [*await store.conversation(turns[70].id)] == turns[:71]

    @on_a_loop
    async def test_deleting_a_response_removes_no_other(self, open_large: Open, tmp_path: Path) -> None:
        async with opened(open_large, tmp_path) as store:
            await store.put(response("resp_1"))
            await store.put(response("resp_2", "resp_1"))
            await store.put(response("resp_3", "resp_2"))
            await store.delete("resp_2")
            assert await outcome(store.get("resp_2")) is KeyError
            assert await store.get("resp_1") == response("resp_1")
            assert await store.get("resp_3") == response("resp_3", "resp_2")

    @on_a_loop
    async def test_a_conversation_gap_raises_key_error(self, open_large: Open, tmp_path: Path) -> None:
        """The argument of the `KeyError` is the id of the missing response."""
        async with opened(open_large, tmp_path) as store:
            await store.put(response("resp_1"))
            await store.put(response("resp_2", "resp_1"))
            await store.put(response("resp_3", "resp_2"))
            await store.delete("resp_1")
            with pytest.raises(KeyError) as caught:
                await store.conversation("resp_3")
            assert caught.value.args == ("resp_1",)

    @on_a_loop
    async def test_unfinished_lists_queued_and_running_responses(
        self, open_large: Open, tmp_path: Path
    ) -> None:
        async with opened(open_large, tmp_path) as store:
            states = ("queued", "in_progress", "completed", "failed", "incomplete", "cancelled")
            for number, status in enumerate(states):
                await store.put(response(f"resp_{number}", status=status))
            assert sorted(record.id for record in await store.unfinished()) == ["resp_0", "resp_1"]
            await store.put(response("resp_0", status="completed"))
            await store.delete("resp_1")
            assert [*await store.unfinished()] == []

    @on_a_loop
    async def test_many_responses_are_found_and_purged(self, open_large: Open, tmp_path: Path) -> None:
        """`unfinished` returns 150 responses, and `purge` removes 150 conversations."""
        async with opened(open_large, tmp_path) as store:
            names = [f"resp_{number:03}" for number in range(MANY)]
            for name in names:
                await store.put(response(name, status="queued", created_at=1.0))
            assert_complete(sorted(record.id for record in await store.unfinished()), names)
            assert await store.purge(2.0) == MANY
            assert [*await store.unfinished()] == []

    @on_a_loop
    async def test_purge_removes_conversations_by_last_turn(self, open_large: Open, tmp_path: Path) -> None:
        async with opened(open_large, tmp_path) as store:
            await store.put(response("resp_1", created_at=10.0))
            await store.put(response("resp_2", "resp_1", created_at=20.0))
            await store.put(response("resp_3", created_at=15.0))
            await store.put(response("resp_4", created_at=30.0))
            assert await store.purge(15.0) == 0
            assert await store.purge(20.0) == 1
            assert await outcome(store.get("resp_3")) is KeyError
            assert len(await store.conversation("resp_2")) == 2
            assert await store.purge(25.0) == 2
            assert await outcome(store.get("resp_1")) is KeyError
            assert await store.get("resp_4") == response("resp_4", created_at=30.0)
            assert await store.purge(25.0) == 0

    @on_a_loop
    async def test_the_least_recently_continued_conversation_is_evicted(
        self, open_small: Open, tmp_path: Path
    ) -> None:
        async with opened(open_small, tmp_path) as store:
            full: Any = {"response": object_of(20), "input": b'["y"]'}  # 25 bytes: the store holds four
            await store.put(response("resp_1", created_at=1.0, **full))
            await store.put(response("resp_2", created_at=2.0, **full))
            await store.put(response("resp_3", "resp_1", created_at=3.0, **full))
            await store.put(response("resp_4", created_at=4.0, **full))
            await store.put(response("resp_5", created_at=5.0, **full))
            assert await self.there(store, 5) == [1, 3, 4, 5]
            await store.put(response("resp_6", created_at=6.0, **full))
            assert await self.there(store, 6) == [4, 5, 6]
            await store.put(response("resp_6", created_at=6.0, response=object_of(49)))
            assert await self.there(store, 6) == [5, 6]

    @on_a_loop
    async def test_no_call_holds_up_the_event_loop(self, open_large: Open, tmp_path: Path) -> None:
        async with opened(open_large, tmp_path) as store:

            async def use() -> None:
                await store.put(response("resp_1"))
                for number in range(2, 20):
                    await store.put(response(f"resp_{number}", f"resp_{number - 1}"))
                await store.get("resp_9")
                await store.conversation("resp_19")
                await store.unfinished()
                await store.delete("resp_1")

            await assert_loop_stays_free(use)

    @on_a_loop
    async def test_concurrent_puts_lose_nothing(self, open_large: Open, tmp_path: Path) -> None:
        async with opened(open_large, tmp_path) as store:
            await store.put(response("resp_x", response=b'{"n":0}', input=b"[0]"))

            async def work(number: int) -> None:
                previous = None
                for turn in range(5):
                    made = response(f"resp_{number}_{turn}", previous, created_at=float(turn))
                    await store.put(made)
                    both: Any = {"response": b'{"n":%d}' % number, "input": b"[%d]" % number}
                    await store.put(response("resp_x", **both))
                    previous = made.id
                assert len(await store.conversation(f"resp_{number}_4")) == 5

            async def watch() -> None:
                for _ in range(50):
                    seen = await store.get("resp_x")
                    assert seen.response == b'{"n":%s}' % seen.input.strip(b"[]")
                    await asyncio.sleep(0)

            await asyncio.gather(*map(work, range(10)), watch())
            assert await store.purge(1e9) == 51

    @pytest.mark.usefixtures("lasting")
    @on_a_loop
    async def test_responses_survive_reopening(
        self, open_large: Open, open_small: Open, tmp_path: Path
    ) -> None:
        full: Any = {"response": object_of(40)}
        async with opened(open_large, tmp_path) as store:
            await store.put(response("resp_1", created_at=1.0, **full))
            await store.put(response("resp_2", "resp_1", created_at=2.0, status="queued", **full))
            await store.put(response("resp_3", created_at=3.0))
            await store.delete("resp_3")
        async with opened(open_small, tmp_path) as store:
            assert [record.id for record in await store.conversation("resp_2")] == ["resp_1", "resp_2"]
            assert [record.id for record in await store.unfinished()] == ["resp_2"]
            assert await outcome(store.get("resp_3")) is KeyError
            await store.put(response("resp_4", created_at=4.0, **full))
            assert await self.there(store, 4) == [4]

    @given(operations=OPERATIONS)
    @drawn
    @on_a_loop
    async def test_it_behaves_like_the_model(
        self, open_small: Open, survives_reopening: bool, tmp_path: Path, operations: Sequence[Operation]
    ) -> None:
        """Any sequence of operations and reopenings gives the results of a store made of a dictionary."""
        model = ResponseModel()
        with tempfile.TemporaryDirectory(dir=tmp_path) as name:
            store = await asyncio.to_thread(open_small, Path(name))
            try:
                for operation in operations:
                    if operation[0] != "reopen":
                        method, arguments = model.call_of(*operation)
                        expected = await outcome(getattr(model, method)(*arguments))
                        found = await outcome(getattr(store, method)(*arguments))
                        assert comparable(method, found) == comparable(method, expected), operation
                    elif survives_reopening:
                        await store.close()
                        store = await asyncio.to_thread(open_small, Path(name))
            finally:
                await store.close()

    @staticmethod
    async def there(store: ResponseStore, most: int) -> list[int]:
        """Return the numbers n from 1 to `most` for which the store holds the response resp_n."""
        return [n for n in range(1, most + 1) if await outcome(store.get(f"resp_{n}")) is not KeyError]


def comparable(method: str, found: Any) -> Any:
    """Return a call's result in a form that tests can compare. Sorts records that may come in any order."""
    if method == "unfinished":
        return sorted(found, key=lambda record: record.id)
    return [*found] if method == "conversation" and found is not KeyError else found


def _open(open_store: OpenResponses, folder: Path, max_bytes: int) -> ResponseStore:
    return built(open_store, folder, max_bytes)
