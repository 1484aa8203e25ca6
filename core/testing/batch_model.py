"""Reference model of a batch store, and random operations for tests that compare a store with the model."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st

from llmfw.core.interfaces.batch_store import ENDED, BatchRecord, BatchStore, LineResult

from .stores import any_of

IDS = tuple(f"batch_{number}" for number in range(4))
STATES = ("validating", "in_progress", *sorted(ENDED))
OWNERS = ("a", "b")
TENANTS = ("", "ann", "bob")
HOUR = 3600.0


def job(id: str = "batch_1", status: str = "in_progress", **fields: Any) -> BatchRecord:
    """Return a batch job's record with default values for all fields that are not given."""
    given = {
        "endpoint": "/v1/completions",
        "input_file_id": "file-1",
        "completion_window": "24h",
        "created_at": 1,
        "expires_at": 2,
        "tenant": "ann",
        **fields,
    }
    return BatchRecord(id=id, status=status, **given)


def line(number: int, *, failed: bool = False, data: bytes | None = None) -> LineResult:
    """Return the result of a line. By default, its data contains the line's number."""
    return LineResult(number, failed, b'{"line": %d}' % number if data is None else data)


async def lines(store: BatchStore, id: str = "batch_1", *, failed: bool = False) -> Sequence[bytes]:
    """Return the data of a job's completed lines, or of its failed ones."""
    return [data async for piece in store.results(id).lines(failed=failed) for data in piece]


async def counts(store: BatchStore, id: str = "batch_1") -> tuple[int, int]:
    """Return the numbers of completed and failed lines of a job."""
    record = await store.get(id)
    return record.num_completed, record.num_failed


class BatchModel:
    """Reference model of a batch store, made of dictionaries. Has the same methods as `StoreAdapter`."""

    def __init__(self) -> None:
        self.records: dict[str, BatchRecord] = {}
        self.results: dict[str, dict[int, LineResult]] = {}
        self.owners: dict[str, str] = {}

    async def create(self, id: str, tenant: str) -> None:
        if id not in self.records:
            self.records[id] = job(id, "validating", tenant=tenant)
            self.results[id] = {}

    async def get(self, id: str) -> BatchRecord:
        return self.records[id]

    async def list(
        self, tenants: Collection[str] | None, after: str | None, limit: int, unfinished: bool
    ) -> Sequence[str]:
        found = [
            record.id
            for record in self.records.values()
            if (after is None or record.id < after)
            and not (unfinished and record.status in ENDED)
            and (tenants is None or record.tenant in tenants)
        ]
        return sorted(found, reverse=True)[:limit]

    async def update(self, id: str, status: str, expected: str, num_total: int) -> bool:
        old = self.records[id]
        if old.status in ENDED and status not in ENDED:
            return False  # the server never restarts a finished job
        if old.status != expected:
            return False
        self.records[id] = msgspec.structs.replace(old, status=status, num_total=num_total)
        if status in ENDED:
            self.results.pop(id, None)
        return True

    async def all(self) -> Sequence[BatchRecord]:
        return [record for _, record in sorted(self.records.items(), reverse=True)]

    async def reopen(self) -> None:
        self.owners.clear()

    async def lease(self, id: str, owner: str, seconds: float) -> bool | None:
        if self.records[id].status in ENDED:
            return None  # the job is finished: a store may keep the lease or drop it
        if self.owners.get(id, owner) != owner:
            return False
        self.owners[id] = owner
        if not seconds:
            del self.owners[id]
        return True

    async def add(self, id: str, results: Sequence[LineResult]) -> None:
        for result in results:
            if result.line not in self.results[id]:
                self.results[id][result.line] = result
                name = "num_failed" if result.failed else "num_completed"
                grown = {name: getattr(self.records[id], name) + 1}
                self.records[id] = msgspec.structs.replace(self.records[id], **grown)
        _ = self.results[id]  # raises KeyError even if `results` is empty

    async def done(self, id: str) -> Collection[int]:
        return sorted(self.results[id])

    async def lines(self, id: str, failed: bool) -> Sequence[bytes]:
        return [result.data for _, result in sorted(self.results[id].items()) if result.failed == failed]


class StoreAdapter:
    """Wraps a batch store in the methods of the reference model, so that a test can compare the two."""

    def __init__(self, store: BatchStore) -> None:
        self.store = store

    async def create(self, id: str, tenant: str) -> None:
        """Create a job if none with this id exists."""
        try:
            await self.store.get(id)
        except KeyError:
            await self.store.create(job(id, "validating", tenant=tenant))

    async def get(self, id: str) -> BatchRecord:
        return await self.store.get(id)

    async def list(self, **options: Any) -> Sequence[str]:
        return [record.id for record in await self.store.list(**options)]

    async def all(self) -> Sequence[BatchRecord]:
        return [*await self.store.list(limit=99)]

    async def reopen(self) -> None:
        """Release all leases, because a store may either keep or drop leases when it is reopened."""
        for record in await self.store.list(limit=99):
            for owner in OWNERS:
                await self.store.lease(record.id, owner, 0)

    async def update(self, id: str, status: str, expected: str, num_total: int) -> bool:
        old = await self.store.get(id)
        if old.status in ENDED and status not in ENDED:
            return False
        # Pass wrong counts: the store must ignore them, because a caller's counts may be outdated.
        given = {"status": status, "num_total": num_total, "num_completed": 77, "num_failed": 77}
        return await self.store.update(msgspec.structs.replace(old, **given), expected=expected)

    async def lease(self, id: str, owner: str, seconds: float) -> bool | None:
        if (await self.store.get(id)).status in ENDED:
            return None
        return await self.store.lease(id, owner, seconds)

    async def add(self, id: str, results: Sequence[LineResult]) -> None:
        await self.store.results(id).add(results)

    async def done(self, id: str) -> Collection[int]:
        return sorted(await self.store.results(id).done())

    async def lines(self, id: str, failed: bool) -> Sequence[bytes]:
        return await lines(self.store, id, failed=failed)


_ID = st.sampled_from(IDS)
_STATE = st.sampled_from(STATES)
_LINE = st.builds(LineResult, st.integers(1, 8), st.booleans(), st.binary(max_size=4))

OPERATIONS = any_of(
    {
        "create": {"id": _ID, "tenant": st.sampled_from(TENANTS)},
        "get": {"id": _ID},
        "list": {
            "tenants": st.none() | st.lists(st.sampled_from(TENANTS), unique=True),
            "after": st.none() | _ID,
            "limit": st.integers(1, 4),
            "unfinished": st.booleans(),
        },
        "update": {"id": _ID, "status": _STATE, "expected": _STATE, "num_total": st.integers(0, 9)},
        "lease": {
            "id": _ID,
            "owner": st.sampled_from(OWNERS),
            "seconds": st.sampled_from((0.0, HOUR)),
        },
        "add": {"id": _ID, "results": st.lists(_LINE, max_size=5)},
        "done": {"id": _ID},
        "lines": {"id": _ID, "failed": st.booleans()},
        "all": {},
        "reopen": {},
    }
)
