"""Conformance tests of the `BatchStore` interface."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.core.interfaces.batch_store import ENDED, BatchRecord, BatchStore

from .batch_model import HOUR, OPERATIONS, BatchModel, StoreAdapter, counts, job, line, lines
from .resources import assert_loop_stays_free
from .stores import (
    Operation,
    StoreTests,
    assert_complete,
    assert_same_results,
    drawn,
    fresh,
    on_a_loop,
    opened,
    outcome,
    structs,
)

OpenBatches = Callable[[Path], BatchStore]

MANY = 150
UNFINISHED = ("validating", "in_progress", "finalizing", "cancelling")
STRANGE_IDS = ("", "batch_2", "batch_1\0", "../batch_1", "\udcff", "%", "BATCH_1", " batch_1", "batch_1\n")
COUNTED = {"num_completed": st.just(0), "num_failed": st.just(0)}  # counts that the store maintains itself


async def lease_soon(store: BatchStore, owner: str) -> bool:
    """Try for a few seconds to lease `batch_1` for an owner; return whether the owner got the lease."""
    for _ in range(500):
        if await store.lease("batch_1", owner, HOUR):
            return True
        await asyncio.sleep(0.01)
    return False


class BatchStoreTests(StoreTests[BatchStore]):
    """Conformance tests of a batch store.

    Derive from this class and override the fixture `open_store`, and `survives_reopening` if the store keeps
    its contents when it is closed.
    """

    @given(record=structs(BatchRecord, status=st.sampled_from(UNFINISHED), **COUNTED))
    @drawn
    @on_a_loop
    async def test_a_created_job_keeps_every_field(
        self, open_store: OpenBatches, tmp_path: Path, record: BatchRecord
    ) -> None:
        async with fresh(open_store, tmp_path) as store:
            await store.create(record)
            assert await store.get(record.id) == record
            assert [*await store.list(limit=5)] == [record]

    @given(record=structs(BatchRecord, id=st.just("batch_1"), **COUNTED))
    @drawn
    @on_a_loop
    async def test_an_updated_job_keeps_every_field(
        self, open_store: OpenBatches, tmp_path: Path, record: BatchRecord
    ) -> None:
        async with fresh(open_store, tmp_path) as store:
            await store.create(job())
            assert await store.update(record, expected="in_progress") is True
            assert await store.get("batch_1") == record

    @on_a_loop
    async def test_an_update_with_stale_status_is_refused(
        self, open_store: OpenBatches, tmp_path: Path
    ) -> None:
        async with opened(open_store, tmp_path) as store:
            await store.create(job(status="cancelling"))
            assert await store.update(job(status="completed"), expected="in_progress") is False
            assert await store.get("batch_1") == job(status="cancelling")
            await store.results("batch_1").add([line(1)])

    @on_a_loop
    async def test_one_of_many_concurrent_updates_succeeds(
        self, open_store: OpenBatches, tmp_path: Path
    ) -> None:
        async with opened(open_store, tmp_path) as store:
            await store.create(job())
            changed = [job(status=f"state {number}") for number in range(20)]
            done = await asyncio.gather(*(store.update(record, expected="in_progress") for record in changed))
            assert done.count(True) == 1
            assert await store.get("batch_1") == changed[done.index(True)]

    @pytest.mark.parametrize("id", STRANGE_IDS, ids=ascii)
    @on_a_loop
    async def test_an_unknown_id_raises_key_error(
        self, open_store: OpenBatches, tmp_path: Path, id: str
    ) -> None:
        async with opened(open_store, tmp_path) as store:
            await store.create(job())
            adapter = StoreAdapter(store)
            assert await outcome(adapter.get(id)) is KeyError
            assert await outcome(store.update(job(id), expected="in_progress")) is KeyError
            assert await outcome(adapter.lease(id, "a", HOUR)) is KeyError
            assert await outcome(adapter.add(id, [line(1)])) is KeyError
            assert await outcome(adapter.done(id)) is KeyError
            assert await outcome(adapter.lines(id, failed=False)) is KeyError
            assert [*await store.list(limit=9)] == [job()]

    @on_a_loop
    async def test_the_first_result_counts_once(self, open_store: OpenBatches, tmp_path: Path) -> None:
        """A line keeps its first result; results that are added again are ignored."""
        async with opened(open_store, tmp_path) as store:
            await store.create(job())
            results = store.results("batch_1")
            await results.add([line(1), line(2, failed=True), line(1, failed=True, data=b"2nd")])
            await results.add([line(3), line(2, data=b"2nd"), line(1, data=b"2nd")])
            await results.add([line(3)])
            await results.add([])
            assert await counts(store) == (2, 1)
            assert [*await lines(store)] == [line(1).data, line(3).data]
            assert [*await lines(store, failed=True)] == [line(2).data]
            assert sorted(await results.done()) == [1, 2, 3]

    @on_a_loop
    async def test_lines_are_returned_by_ascending_number(
        self, open_store: OpenBatches, tmp_path: Path
    ) -> None:
        """The order in which lines were added does not matter."""
        numbers = random.Random(1).sample(range(1, 100_000), 3000)
        async with opened(open_store, tmp_path) as store:
            await store.create(job())
            for start in range(0, len(numbers), 70):
                group = numbers[start : start + 70]
                await store.results("batch_1").add([line(n, failed=n % 3 == 0) for n in group])
            for failed in (False, True):
                expected = [line(n).data for n in sorted(numbers) if (n % 3 == 0) == failed]
                assert [*await lines(store, failed=failed)] == expected
            assert sorted(await store.results("batch_1").done()) == sorted(numbers)

    @on_a_loop
    async def test_large_lines_are_returned_whole(self, open_store: OpenBatches, tmp_path: Path) -> None:
        data = [bytes([number]) * 700_000 for number in range(1, 8)]
        async with opened(open_store, tmp_path) as store:
            await store.create(job())
            await store.results("batch_1").add([line(n, data=d) for n, d in enumerate(data, 1)])
            found = await lines(store)
            assert [(d[:1], len(d), d == e) for d, e in zip(found, data, strict=True)] == [
                (d[:1], len(d), True) for d in data
            ]

    @on_a_loop
    async def test_concurrent_adds_count_each_line_once(
        self, open_store: OpenBatches, tmp_path: Path
    ) -> None:
        async with opened(open_store, tmp_path) as store:
            await store.create(job())

            async def work(owner: int) -> None:
                for start in range(1, 200, 10):  # all owners add the same lines
                    group = [line(n, failed=n % 10 == 0) for n in range(start, start + 10)]
                    await store.results("batch_1").add(group)
                    await store.get("batch_1")

            await asyncio.gather(*map(work, range(6)))
            assert await counts(store) == (180, 20)
            assert [*await lines(store)] == [line(n).data for n in range(1, 201) if n % 10]

    @on_a_loop
    async def test_no_call_holds_up_the_event_loop(self, open_store: OpenBatches, tmp_path: Path) -> None:
        async with opened(open_store, tmp_path) as store:
            await store.create(job())
            numbers = itertools.count(1)

            async def use() -> None:
                results = store.results("batch_1")
                for _ in range(10):
                    await results.add([line(next(numbers)) for _ in range(20)])
                assert await lines(store)
                await store.list(limit=10)
                await store.get("batch_1")
                assert await store.lease("batch_1", "one", HOUR)

            await assert_loop_stays_free(use)

    @on_a_loop
    async def test_each_job_has_separate_results(self, open_store: OpenBatches, tmp_path: Path) -> None:
        async with opened(open_store, tmp_path) as store:
            for number in (1, 2):
                await store.create(job(f"batch_{number}"))
                await store.results(f"batch_{number}").add([line(n) for n in range(number, 2 * number + 2)])
            assert await counts(store, "batch_1") == (3, 0)
            assert [*await lines(store, "batch_2")] == [line(n).data for n in range(2, 6)]
            await store.update(job("batch_1", "completed"), expected="in_progress")
            assert [*await lines(store, "batch_2")] == [line(n).data for n in range(2, 6)]

    @on_a_loop
    async def test_an_update_keeps_the_counts(self, open_store: OpenBatches, tmp_path: Path) -> None:
        async with opened(open_store, tmp_path) as store:
            await store.create(job())
            await store.results("batch_1").add([line(1), line(2), line(3, failed=True)])
            old = job(status="finalizing", num_total=9, num_completed=1)
            await store.update(old, expected="in_progress")
            expected = msgspec.structs.replace(old, num_completed=2, num_failed=1)
            assert await store.get("batch_1") == expected
            assert [*await store.list(limit=1)] == [expected]

    @pytest.mark.parametrize("status", UNFINISHED)
    @on_a_loop
    async def test_an_unfinished_job_keeps_its_results(
        self, open_store: OpenBatches, tmp_path: Path, status: str
    ) -> None:
        """The job's status may change any number of times, and further results may be added."""
        async with opened(open_store, tmp_path) as store:
            await store.create(job())
            await store.results("batch_1").add([line(1), line(2, failed=True)])
            assert await store.update(job(status=status), expected="in_progress")
            assert await store.update(job(status=status), expected=status)
            await store.results("batch_1").add([line(3), line(1, data=b"2nd")])
            assert sorted(await store.results("batch_1").done()) == [1, 2, 3]
            assert [*await lines(store)] == [line(1).data, line(3).data]
            assert [*await lines(store, failed=True)] == [line(2).data]
            assert await counts(store) == (2, 1)

    @pytest.mark.parametrize("status", sorted(ENDED))
    @on_a_loop
    async def test_an_ended_job_keeps_counts_but_no_results(
        self, open_store: OpenBatches, tmp_path: Path, status: str
    ) -> None:
        async with opened(open_store, tmp_path) as store:
            await store.create(job())
            results = store.results("batch_1")
            await results.add([line(1), line(2, failed=True)])
            await store.update(job(status=status), expected="in_progress")
            adapter = StoreAdapter(store)
            assert await outcome(results.add([line(3)])) is KeyError
            assert await outcome(results.done()) is KeyError
            assert await outcome(adapter.add("batch_1", [])) is KeyError
            assert await outcome(adapter.done("batch_1")) is KeyError
            assert await outcome(adapter.lines("batch_1", failed=False)) is KeyError
            assert await store.get("batch_1") == job(status=status, num_completed=1, num_failed=1)

    @on_a_loop
    async def test_listings_are_newest_first(self, open_store: OpenBatches, tmp_path: Path) -> None:
        async with opened(open_store, tmp_path) as store:
            for number in (3, 1, 5, 2):
                await store.create(job(f"batch_{number}"))
            await store.update(job("batch_3", "failed"), expected="in_progress")
            listed = StoreAdapter(store).list
            assert await listed(limit=9) == ["batch_5", "batch_3", "batch_2", "batch_1"]
            assert await listed(limit=2) == ["batch_5", "batch_3"]
            assert await listed(limit=2, after="batch_3") == ["batch_2", "batch_1"]
            assert await listed(limit=2, after="batch_4") == ["batch_3", "batch_2"]  # batch_4 does not exist
            assert await listed(limit=2, after="batch_1") == []
            assert await listed(limit=9, unfinished=True) == ["batch_5", "batch_2", "batch_1"]
            assert await listed(limit=1, after="batch_5", unfinished=True) == ["batch_2"]

    @on_a_loop
    async def test_long_listings_are_complete(self, open_store: OpenBatches, tmp_path: Path) -> None:
        """Holds for 150 jobs, if `limit` allows a list of this length."""
        async with opened(open_store, tmp_path) as store:
            names = [f"batch_{number:03}" for number in range(MANY)]
            for name in names:
                await store.create(job(name))
            listed = StoreAdapter(store).list
            assert_complete(await listed(limit=MANY), names[::-1])
            assert_complete(await listed(limit=10 * MANY, tenants=["ann"]), names[::-1])
            assert_complete(await listed(limit=MANY, after=names[-9]), names[-10::-1])
            assert_complete(await listed(limit=MANY, unfinished=True), names[::-1])

    @on_a_loop
    async def test_a_listing_has_only_the_named_tenants(
        self, open_store: OpenBatches, tmp_path: Path
    ) -> None:
        async with opened(open_store, tmp_path) as store:
            for number, tenant in enumerate(("ann", "bob", "", "ann")):
                await store.create(job(f"batch_{number}", tenant=tenant))
            await store.update(job("batch_3", "failed", tenant="ann"), expected="in_progress")
            listed = StoreAdapter(store).list
            assert await listed(limit=9, tenants=["ann"]) == ["batch_3", "batch_0"]
            assert await listed(limit=9, tenants={"ann", ""}) == ["batch_3", "batch_2", "batch_0"]
            assert await listed(limit=1, tenants=("ann",), after="batch_3") == ["batch_0"]
            assert await listed(limit=9, tenants=["ann"], unfinished=True) == ["batch_0"]
            assert await listed(limit=9, tenants=["eve"]) == await listed(limit=9, tenants=[]) == []
            await store.update(job("batch_0", tenant="bob"), expected="in_progress")
            assert await listed(limit=9, tenants=["bob"]) == ["batch_1", "batch_0"]

    @on_a_loop
    async def test_only_the_owner_renews_or_releases_a_lease(
        self, open_store: OpenBatches, tmp_path: Path
    ) -> None:
        async with opened(open_store, tmp_path) as store:
            for number in (1, 2):
                await store.create(job(f"batch_{number}"))
            assert await store.lease("batch_1", "a", HOUR)
            assert not await store.lease("batch_1", "b", HOUR)
            assert not await store.lease("batch_1", "b", 0)  # does not release the lease of "a"
            assert not await store.lease("batch_1", "c", HOUR)
            assert await store.lease("batch_2", "b", HOUR)
            assert await store.lease("batch_1", "a", HOUR)
            assert await store.lease("batch_1", "a", 0)
            assert await store.lease("batch_1", "b", HOUR)
            assert not await store.lease("batch_1", "a", HOUR)

    @on_a_loop
    async def test_one_of_many_concurrent_leases_succeeds(
        self, open_store: OpenBatches, tmp_path: Path
    ) -> None:
        async with opened(open_store, tmp_path) as store:
            await store.create(job())
            owners = [f"owner {number}" for number in range(20)]
            got = await asyncio.gather(*(store.lease("batch_1", owner, HOUR) for owner in owners))
            assert got.count(True) == 1

    @on_a_loop
    async def test_a_lease_expires_unless_it_is_renewed(
        self, open_store: OpenBatches, tmp_path: Path
    ) -> None:
        async with opened(open_store, tmp_path) as store:
            await store.create(job())
            await store.lease("batch_1", "a", 0.02)
            assert await lease_soon(store, "b")
            await store.lease("batch_1", "b", 0)
            if await store.lease("batch_1", "a", 0.02) and await store.lease("batch_1", "a", HOUR):
                await asyncio.sleep(0.1)
            assert not await store.lease("batch_1", "b", HOUR)
            await store.lease("batch_1", "a", 0.02)  # counts from now, so it shortens the lease
            assert await lease_soon(store, "b")

    @pytest.mark.usefixtures("lasting")
    @on_a_loop
    async def test_jobs_and_results_survive_reopening(self, open_store: OpenBatches, tmp_path: Path) -> None:
        async with opened(open_store, tmp_path) as store:
            for number in (1, 2):
                await store.create(job(f"batch_{number}", metadata={"a": "ü"}))
            await store.update(job("batch_2", "failed"), expected="in_progress")
            await store.results("batch_1").add([line(n, failed=n == 7) for n in range(1, 1001)])
        async with opened(open_store, tmp_path) as store:
            expected = job(metadata={"a": "ü"}, num_completed=999, num_failed=1)
            assert [*await store.list(limit=9)] == [job("batch_2", "failed"), expected]
            await store.results("batch_1").add([line(1), line(1001)])
            assert await counts(store) == (1000, 1)
            assert [*await lines(store)] == [line(n).data for n in range(1, 1002) if n != 7]

    @given(operations=OPERATIONS)
    @drawn
    @on_a_loop
    async def test_it_behaves_like_the_model(
        self,
        open_store: OpenBatches,
        survives_reopening: bool,
        tmp_path: Path,
        operations: Sequence[Operation],
    ) -> None:
        """Any sequence of operations and reopenings gives the results of a store made of a dictionary."""
        model = BatchModel()
        await assert_same_results(
            open_store, tmp_path, StoreAdapter, model, operations, reopening=survives_reopening
        )
