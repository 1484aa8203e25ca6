"""The response store `sqlite`: responses in a SQLite file. Does not depend on their content."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import sqlite_utils

from llmfw.core import ConfigError, ResponseRecord, ResponseStore

from .database import Database, bindable
from .failures import refusal
from .statements import StatementThread

APPLICATION_ID = 0x6C6C6D72  # "llmr"


def _first_tables(db: sqlite_utils.Database) -> None:
    """Create the tables of responses and conversations.

    A conversation's key is the id of its first response.
    """
    db.table("responses").create(
        {
            "id": str,
            "root": str,
            "previous": str,
            "created_at": float,
            "status": str,
            "size": int,
            "response": bytes,
            "input": bytes,
        },
        pk="id",
    )
    db.table("conversations").create({"root": str, "last_at": float, "size": int}, pk="root")
    db.table("responses").create_index(["root"])
    db.table("responses").create_index(["status"])
    db.table("conversations").create_index(["last_at", "root"])


def _tenants(db: sqlite_utils.Database) -> None:
    """Add the column `tenant`. Existing responses belong to no tenant."""
    db.execute("alter table responses add column tenant text not null default ''")


MIGRATIONS = (_first_tables, _tenants)

_CONVERSATION = """
with recursive turn(id, previous, age) as (
    select id, previous, 0 from responses where id = ?
    union all
    select older.id, older.previous, turn.age + 1 from responses as older join turn on older.id = turn.previous
)
select responses.* from responses join turn using (id) order by turn.age desc
"""


class SqliteResponses(ResponseStore):
    """Keeps responses in `responses.db`.

    Raises:
        ConfigError: from the constructor: no folder was given, or `Database` raises it.
    """

    conformance: ClassVar = {"survives_reopening": True}

    def __init__(self, folder: Path | None, max_bytes: int) -> None:
        if folder is None:
            raise ConfigError("response store 'sqlite' needs a folder: give --storage DIR")
        self._max_bytes = max_bytes
        self._file = Database(folder / "responses.db", APPLICATION_ID, MIGRATIONS)
        self._db = self._file.db
        try:
            self._bytes = int(next(self._db.query("select total(size) as size from conversations"))["size"])
        except sqlite3.Error as error:
            self._file.close()
            raise refusal(error, self._file.path) from error
        self._statements = StatementThread(self._file)

    async def put(self, record: ResponseRecord) -> None:
        await self._statements.run(self._put, record)

    async def get(self, response_id: str) -> ResponseRecord:
        return await self._statements.run(self._get, response_id)

    async def conversation(self, response_id: str) -> Sequence[ResponseRecord]:
        return await self._statements.run(self._conversation, response_id)

    async def delete(self, response_id: str) -> None:
        await self._statements.run(self._delete, response_id)

    async def unfinished(self) -> Sequence[ResponseRecord]:
        return await self._statements.run(self._unfinished)

    async def purge(self, before: float) -> int:
        return await self._statements.run(self._purge, before)

    async def close(self) -> None:
        await self._statements.close()

    def _put(self, record: ResponseRecord) -> None:
        with self._file.changes():
            old = self._row(record.id)
            before = old or self._row(record.previous)
            root = before["root"] if before else record.id
            grown = record.size - (old["size"] if old else 0)
            self._db.table("responses").insert(
                {
                    "id": record.id,
                    "root": root,
                    "previous": record.previous,
                    "created_at": record.created_at,
                    "status": record.status,
                    "size": record.size,
                    "response": record.response,
                    "input": record.input,
                    "tenant": record.tenant,
                },
                replace=True,
            )
            self._db.execute(
                "insert into conversations (root, last_at, size) values (:root, :at, :grown) on conflict (root) "
                "do update set last_at = max(last_at, excluded.last_at), size = size + excluded.size",
                {"root": root, "at": record.created_at, "grown": grown},
            )
            freed = self._make_room(grown)
        self._bytes += grown - freed

    def _make_room(self, grown: int) -> int:
        """Remove the oldest conversations until the rest fits; return the number of freed bytes."""
        freed = 0
        while self._bytes + grown - freed > self._max_bytes:
            oldest = next(self._db.query("select * from conversations order by last_at, root limit 1"))
            self._forget(oldest["root"])
            freed += oldest["size"]
        return freed

    def _get(self, response_id: str) -> ResponseRecord:
        row = self._row(response_id)
        if row is None:
            raise KeyError(response_id)
        return _record(row)

    def _conversation(self, response_id: str) -> list[ResponseRecord]:
        found = [_record(row) for row in self._db.query(_CONVERSATION, [bindable(response_id)])]
        missing = found[0].previous if found else response_id
        if missing is not None:
            raise KeyError(missing)
        return found

    def _delete(self, response_id: str) -> None:
        row = self._row(response_id)
        if row is None:
            raise KeyError(response_id)
        with self._file.changes():
            self._db.table("responses").delete(response_id)
            self._db.execute(
                "update conversations set size = size - ? where root = ?", [row["size"], row["root"]]
            )
            self._db.execute(
                "delete from conversations where root = :root "
                "and not exists (select 1 from responses where root = :root)",
                {"root": row["root"]},
            )
        self._bytes -= row["size"]
        self._file.shrink()

    def _unfinished(self) -> list[ResponseRecord]:
        rows = self._db.table("responses").rows_where("status in ('queued', 'in_progress')")
        return [_record(row) for row in rows]

    def _purge(self, before: float) -> int:
        old = list(self._db.table("conversations").rows_where("last_at < ?", [before]))
        with self._file.changes():
            removed = sum(self._forget(row["root"]) for row in old)
        self._bytes -= sum(row["size"] for row in old)
        self._file.shrink()
        return removed

    def _forget(self, root: str) -> int:
        """Remove a conversation; return the number of its responses."""
        removed = self._db.execute("delete from responses where root = ?", [root]).rowcount
        self._db.execute("delete from conversations where root = ?", [root])
        return int(removed)

    def _row(self, response_id: str | None) -> dict[str, Any] | None:
        rows = self._db.query("select * from responses where id = ?", [bindable(response_id or "")])
        return next(iter(rows), None)


def _record(row: Mapping[str, Any]) -> ResponseRecord:
    return ResponseRecord(**{name: row[name] for name in ResponseRecord.__struct_fields__})
