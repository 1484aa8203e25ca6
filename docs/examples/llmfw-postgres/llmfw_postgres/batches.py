"""Batch jobs and the results of their lines in PostgreSQL.

Any number of servers may share them: who changes a job locks its row, and leases go by the database's clock. Nothing
is kept in this process.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import psycopg

from llmfw.core import ENDED, BatchRecord, BatchResults, BatchStore, LineResult

from .database import Database
from .texts import storable

PIECE_LINES, PIECE_BYTES = 500, 2**20  # of lines that are read at once, whichever is reached first

_FIRST_TABLES = """
create table batches (
    number bigint generated always as identity primary key,
    id text collate "C" not null unique,
    status text not null,
    ended boolean not null,
    num_completed int not null default 0,
    num_failed int not null default 0,
    owner text,
    leased_until timestamptz,
    record json not null
);
create index on batches (id) where not ended;

create table results (
    batch bigint references batches on delete cascade,
    line int,
    failed boolean not null,
    data bytea not null,
    primary key (batch, line)
);
create index on results (batch, line) where failed;
"""
_TENANTS = """
alter table batches add column tenant text not null default '';
update batches set tenant = coalesce(replace(record ->> 'tenant', '\\', '\\\\'), '');
create index on batches (tenant, id);
"""
MIGRATIONS = (_FIRST_TABLES, _TENANTS)

_LEASE = """
update batches set owner = %(owner)s, leased_until = clock_timestamp() + make_interval(secs => %(seconds)s)
where id = %(id)s and (owner = %(owner)s or leased_until is null or leased_until <= clock_timestamp())
"""
_ADD = """
insert into results (batch, line, failed, data)
select %s, * from unnest(%b::int[], %b::boolean[], %b::bytea[])
on conflict do nothing returning failed
"""
_COUNT = (
    "update batches set num_completed = num_completed + %s, num_failed = num_failed + %s where number = %s"
)
# Of the next lines, those before which there is less than a piece.
_PIECE = """
select line, data from (
    select line, data, sum(octet_length(data)) over (order by line) - octet_length(data) as before
    from (
        select line, data from results where batch = %s and line > %s and {} order by line limit %s
    ) as next
) as counted
where before < %s order by line
"""


class PostgresBatches(BatchStore):
    """Keeps jobs in the tables `batches` and `results` of a schema. Any number of servers may share them.

    Args:
        folder: is not used.
    """

    class Options(BatchStore.Options, frozen=True):
        """What can be set.

        Attributes:
            url: of the database; "": as libpq's environment variables (PGHOST, PGSERVICE, PGPASSFILE, …) say.
            schema: for the tables; made if it is not there.
            connections: open at most.
        """

        url: str = ""
        schema: Annotated[str, msgspec.Meta(min_length=1, max_length=63)] = "llmfw"
        connections: Annotated[int, msgspec.Meta(ge=1)] = 4

    conformance = "llmfw_postgres.conformance:PostgresBatchesTests"  # what `llmfw check` runs

    def __init__(self, folder: Path | None, options: Options) -> None:
        self._db = Database(options.url, options.schema, options.connections, "batches", MIGRATIONS)

    async def create(self, record: BatchRecord) -> None:
        async with self._db.transaction() as cursor:
            await cursor.execute(
                "insert into batches (id, status, ended, record, tenant) values (%s, %s, %s, %s, %s)",
                [storable(record.id), *_state(record)],
            )

    async def get(self, batch_id: str) -> BatchRecord:
        query = "select record::text, num_completed, num_failed from batches where id = %s"
        async with self._db.transaction() as cursor:
            await cursor.execute(query, [storable(batch_id)])
            row = await cursor.fetchone()
        if row is None:
            raise KeyError(batch_id)
        return _record(row)

    async def list(
        self,
        *,
        tenants: Collection[str] | None = None,
        after: str | None = None,
        limit: int,
        unfinished: bool = False,
    ) -> Sequence[BatchRecord]:
        where, args = ["true"], []
        if tenants is not None:
            where.append("tenant = any(%s)")
            args.append([*map(storable, tenants)])
        if after is not None:
            where.append("id < %s")
            args.append(storable(after))
        if unfinished:
            where.append("not ended")
        query = (
            "select record::text, num_completed, num_failed from batches "
            f"where {' and '.join(where)} order by id desc limit %s"
        )
        async with self._db.transaction() as cursor:
            await cursor.execute(query, [*args, limit])
            return [_record(row) for row in await cursor.fetchall()]

    async def update(self, record: BatchRecord, *, expected: str) -> bool:
        async with self._db.transaction() as cursor:
            number, status = await _find(cursor, record.id, "for update")
            if status != storable(expected):
                return False
            query = "update batches set status = %s, ended = %s, record = %s, tenant = %s where number = %s"
            await cursor.execute(query, [*_state(record), number])
            if record.status in ENDED:
                await cursor.execute("delete from results where batch = %s", [number])
            return True

    async def lease(self, batch_id: str, owner: str, seconds: float) -> bool:
        async with self._db.transaction() as cursor:
            await cursor.execute(_LEASE, {"id": storable(batch_id), "owner": owner, "seconds": seconds})
            if cursor.rowcount:
                return True
            await _find(cursor, batch_id)  # KeyError, if it is not there
            return False

    def results(self, batch_id: str) -> BatchResults:
        return PostgresResults(self._db, batch_id)

    async def close(self) -> None:
        await self._db.close()


class PostgresResults(BatchResults):
    """The results of one job. Knows it by its id, which it looks for each time: the job may have ended."""

    def __init__(self, db: Database, batch_id: str) -> None:
        self._db = db
        self._id = batch_id

    async def add(self, results: Sequence[LineResult]) -> None:
        first = {result.line: result for result in reversed(results)}.values()
        lines = [result.line for result in first]
        failed = [result.failed for result in first]
        data = [result.data for result in first]
        async with self._db.transaction() as cursor:
            number, _ = await _find(cursor, self._id, "and not ended for update")
            if lines:
                await cursor.execute(_ADD, [number, lines, failed, data])
                kept = [row[0] for row in await cursor.fetchall()]
                await cursor.execute(_COUNT, [kept.count(False), kept.count(True), number])

    async def done(self) -> Collection[int]:
        async with self._db.transaction() as cursor:
            number, _ = await _find(cursor, self._id, "and not ended")
            await cursor.execute("select line from results where batch = %s", [number])
            return {row[0] for row in await cursor.fetchall()}

    async def lines(self, *, failed: bool) -> AsyncIterator[Sequence[bytes]]:
        query = _PIECE.format("failed" if failed else "not failed")
        last = -1
        while True:
            async with self._db.transaction() as cursor:
                number, _ = await _find(cursor, self._id, "and not ended")
                await cursor.execute(query, [number, last, PIECE_LINES, PIECE_BYTES])
                rows = await cursor.fetchall()
            if not rows:
                return
            yield [row[1] for row in rows]
            last = rows[-1][0]


async def _find(cursor: psycopg.AsyncCursor, batch_id: str, condition: str = "") -> tuple[int, str]:
    """Return a job's number and status; KeyError if there is none of this id for which the condition holds."""
    query = f"select number, status from batches where id = %s {condition}"
    await cursor.execute(query, [storable(batch_id)])
    row = await cursor.fetchone()
    if row is None:
        raise KeyError(batch_id)
    return row[0], row[1]


def _state(record: BatchRecord) -> tuple[Any, ...]:
    """Return the columns that follow from a job's state."""
    text = msgspec.json.encode(record).decode()
    return storable(record.status), record.status in ENDED, text, storable(record.tenant)


def _record(row: Sequence[Any]) -> BatchRecord:
    text, num_completed, num_failed = row
    record = msgspec.json.decode(text, type=BatchRecord)
    return msgspec.structs.replace(record, num_completed=num_completed, num_failed=num_failed)
