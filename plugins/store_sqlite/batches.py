"""The batch store `sqlite`: batch jobs, and the results of their lines, in a SQLite file.

A `Sweeper` removes a job's results after the job has ended. Leases are only in memory: only one process can
have the file open, so the leases of an earlier process are no longer in use.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import sqlite_utils

from llmfw.core import ENDED, BatchRecord, BatchResults, BatchStore, ConfigError, LineResult

from .database import Database, bindable, one_of
from .statements import StatementThread
from .sweeper import Sweeper

APPLICATION_ID = 0x6C6C6D62  # "llmb"
PIECE_LINES, PIECE_BYTES = 500, 2**20  # limits of one read; the limit that is reached first counts


def _first_tables(db: sqlite_utils.Database) -> None:
    """Create the tables of jobs and of running jobs' results.

    `record` is the job as JSON, without the two counts.
    """
    db.table("batches").create(
        {
            "number": int,
            "id": str,
            "status": str,
            "ended": int,
            "swept": int,  # whether its results have been removed, after it ended
            "num_completed": int,
            "num_failed": int,
            "record": bytes,
        },
        pk="number",
    )
    db.table("batches").create_index(["id"], unique=True)
    db.execute("create index idx_batches_unfinished on batches (id) where not ended")
    db.execute("create index idx_batches_unswept on batches (number) where ended and not swept")
    db.table("results").create(
        {"batch": int, "line": int, "failed": int, "data": bytes}, pk=("batch", "line")
    )
    db.execute("create index idx_results_failed on results (batch, line) where failed = 1")


def _tenants(db: sqlite_utils.Database) -> None:
    """Add the column `tenant`, and fill it from the records, which have always contained the tenant."""
    db.execute("alter table batches add column tenant text not null default ''")
    db.execute("update batches set tenant = coalesce(json_extract(cast(record as text), '$.tenant'), '')")
    db.table("batches").create_index(["tenant", "id"])


MIGRATIONS = (_first_tables, _tenants)

_INSERT = "insert or ignore into results (batch, line, failed, data) values (?, ?, ?, ?)"
_COUNT = "update batches set num_completed = num_completed + ?, num_failed = num_failed + ? where number = ?"


class SqliteBatches(BatchStore):
    """Keeps batch jobs in `batches.db`.

    Raises:
        ConfigError: from the constructor: no folder was given, or `Database` raises it.
    """

    conformance: ClassVar = {"survives_reopening": True}

    def __init__(self, folder: Path | None) -> None:
        if folder is None:
            raise ConfigError("batch store 'sqlite' needs a folder: give --storage DIR")
        self._file = Database(folder / "batches.db", APPLICATION_ID, MIGRATIONS)
        self._db = self._file.db
        self._leases: dict[str, tuple[str, float]] = {}  # job → owner, until when
        self._statements = StatementThread(self._file)
        self._sweeper = Sweeper(self._file, self._statements)
        self._sweeper.start()

    async def create(self, record: BatchRecord) -> None:
        await self._statements.run(self._create, record)

    async def get(self, batch_id: str) -> BatchRecord:
        return _record(await self._statements.run(self._row, batch_id))

    async def list(
        self,
        *,
        tenants: Collection[str] | None = None,
        after: str | None = None,
        limit: int,
        unfinished: bool = False,
    ) -> Sequence[BatchRecord]:
        where, args = ["true"], {"after": bindable(after or ""), "limit": limit}
        if tenants is not None:
            where.append(one_of("tenant", tenants, args))
        if after is not None:
            where.append("id < :after")
        if unfinished:
            where.append("not ended")
        query = f"select * from batches where {' and '.join(where)} order by id desc limit :limit"
        return await self._statements.run(lambda: [_record(row) for row in self._db.query(query, args)])

    async def update(self, record: BatchRecord, *, expected: str) -> bool:
        done = await self._statements.run(self._update, record, expected)
        if done and record.status in ENDED:
            self._leases.pop(record.id, None)
        return done

    async def lease(self, batch_id: str, owner: str, seconds: float) -> bool:
        await self._statements.run(self._row, batch_id)
        holder, until = self._leases.get(batch_id, (owner, 0.0))
        now = time.monotonic()
        if holder != owner and until > now:
            return False
        self._leases[batch_id] = owner, now + seconds
        return True

    def results(self, batch_id: str) -> BatchResults:
        return SqliteResults(batch_id, self._file, self._statements)

    async def close(self) -> None:
        self._sweeper.stop()
        await self._statements.close()

    def _create(self, record: BatchRecord) -> None:
        row = {"id": record.id, "num_completed": 0, "num_failed": 0, **_state(record)}
        with self._file.changes(synced=True) as db:
            db.table("batches").insert(row)

    def _update(self, record: BatchRecord, expected: str) -> bool:
        with self._file.changes(synced=True) as db:
            row = self._row(record.id)
            if row["status"] != expected:
                return False
            db.table("batches").update(row["number"], _state(record))
        if record.status in ENDED:
            self._sweeper.start()
        return True

    def _row(self, batch_id: str) -> Mapping[str, Any]:
        row = next(self._db.query("select * from batches where id = ?", [bindable(batch_id)]), None)
        if row is None:
            raise KeyError(batch_id)
        return row


class SqliteResults(BatchResults):
    """The results of one job. Every call looks the job up again, because it may have ended."""

    def __init__(self, batch_id: str, file: Database, statements: StatementThread) -> None:
        self._id = batch_id
        self._file = file
        self._connection = file.db.conn
        self._statements = statements

    async def add(self, results: Sequence[LineResult]) -> None:
        await self._statements.run(self._add, results)

    async def done(self) -> Collection[int]:
        return await self._statements.run(self._done)

    async def lines(self, *, failed: bool) -> AsyncIterator[Sequence[bytes]]:
        last: int | None = 0
        while last is not None:
            piece, last = await self._statements.run(self._piece, failed, last)
            if piece:
                yield piece

    def _add(self, results: Sequence[LineResult]) -> None:
        first = {result.line: result for result in reversed(results)}.values()
        with self._file.changes():
            number = self._number()
            counts = [
                self._connection.executemany(
                    _INSERT, [(number, r.line, failed, r.data) for r in first if r.failed == failed]
                ).rowcount
                for failed in (False, True)
            ]
            self._connection.execute(_COUNT, [*(max(count, 0) for count in counts), number])

    def _done(self) -> Collection[int]:
        rows = self._connection.execute("select line from results where batch = ?", [self._number()])
        return {row[0] for row in rows}

    def _piece(self, failed: bool, after: int) -> tuple[list[bytes], int | None]:
        """Return some results after line `after`, and the line number of the last returned result.

        The number is None if no more results follow.
        """
        rows = self._connection.execute(
            f"select line, data from results where batch = ? and line > ? and failed = {int(failed)} order by line",
            [self._number(), after],
        )
        piece, size = [], 0
        for line, data in rows:
            piece.append(data)
            size += len(data)
            if len(piece) >= PIECE_LINES or size >= PIECE_BYTES:
                rows.close()  # an open cursor would hold a read lock, and the WAL would grow
                return piece, line
        return piece, None

    def _number(self) -> int:
        query = "select number from batches where id = ? and not ended"
        row = self._connection.execute(query, [bindable(self._id)]).fetchone()
        if row is None:
            raise KeyError(self._id)
        return int(row[0])


def _state(record: BatchRecord) -> dict[str, Any]:
    """Return the columns that are derived from a job's record."""
    return {
        "status": record.status,
        "ended": record.status in ENDED,
        "swept": False,
        "tenant": record.tenant,
        "record": msgspec.json.encode(record),
    }


def _record(row: Mapping[str, Any]) -> BatchRecord:
    record = msgspec.json.decode(row["record"], type=BatchRecord)
    counts = {"num_completed": row["num_completed"], "num_failed": row["num_failed"]}
    return msgspec.structs.replace(record, **counts)
