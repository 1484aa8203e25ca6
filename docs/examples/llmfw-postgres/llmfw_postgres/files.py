"""Files in PostgreSQL: their bytes in rows of a quarter of a mebibyte, and one row with what is known of each.

A client may take minutes to send or to fetch a file. No transaction and no connection waits for it: each piece is
written or read by one short statement. What holds it together is `contents.kept_until`:

    null         it belongs to a file
    in future    it is being written, or its file has gone and somebody may still read it
    in the past  nobody wants it: whoever of the servers comes by removes it

So nothing has to be cleaned up after a crash, and a file is there from the moment at which its row is.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from llmfw.core import Describe, FileRecord, FileStore, LLMFWError, StorageError

from .database import Database
from .texts import restored, storable

logger = logging.getLogger(__name__)

CHUNK = 2**18  # bytes in a row, but for a file's last one
KEEP_S = 3600  # for which bytes are kept that belong to no file, from the last look at them on
RENEW_S = 300  # between looks
SWEEP_S = 600  # between removals of what nobody wants

_FIRST_TABLES = """
create table contents (
    id bigint generated always as identity primary key,
    kept_until timestamptz
);
create index on contents (kept_until) where kept_until is not null;

create table chunks (
    content bigint references contents on delete cascade,
    number int,
    data bytea not null,
    primary key (content, number)
);
alter table chunks alter column data set storage external;  -- files are often compressed already

create table files (
    id text collate "C" primary key,
    space text not null,
    purpose text not null,
    filename text not null,
    bytes bigint not null,
    created_at bigint not null,
    expires_at bigint,
    content bigint not null unique references contents
);
create index on files (space, id);
create index on files (expires_at) where expires_at is not null;

-- However a file goes or changes, also by hand: its old bytes are kept for those who read them, and not for ever.
create function let_go() returns trigger language plpgsql as $$
begin
    execute format('update %I.contents set kept_until = now() + interval ''1 hour'' where id = $1', tg_table_schema)
        using old.content;
    return null;
end $$;
create trigger let_go after delete on files for each row execute function let_go();
create trigger let_go_replaced after update of content on files for each row
    when (old.content <> new.content) execute function let_go();
"""
_TENANTS = """
alter table files add column tenant text not null default '';
create index on files (space, tenant, id);
"""
MIGRATIONS = (_FIRST_TABLES, _TENANTS)

_COLUMNS = "id, space, purpose, filename, bytes, created_at, expires_at, tenant"
_APPEND = """
with alive as (
    update contents set kept_until = now() + make_interval(secs => %s)
    where id = %s and kept_until is not null returning id
)
insert into chunks (content, number, data) select id, %s, %b from alive
"""
_KEEP = f"""
insert into files ({_COLUMNS}, content) values (%s, %s, %s, %s, %s, %s, %s, %s, %s)
on conflict (id) do update set space = excluded.space, purpose = excluded.purpose, filename = excluded.filename,
    bytes = excluded.bytes, created_at = excluded.created_at, expires_at = excluded.expires_at,
    tenant = excluded.tenant, content = excluded.content
"""
_RENEW = """
update contents set kept_until = greatest(kept_until, now() + make_interval(secs => %s))
where id = %s and kept_until is not null
"""
_SWEEP = """
delete from contents where id in (
    select id from contents where kept_until < now() order by id limit 1 for update skip locked
)
"""


class PostgresFiles(FileStore):
    """Keeps files in the tables `files`, `contents` and `chunks` of a schema. Any number of servers may share them.

    Args:
        folder: is not used.
    """

    class Options(FileStore.Options, frozen=True):
        """What can be set.

        Attributes:
            url: of the database; "": as libpq's environment variables (PGHOST, PGSERVICE, PGPASSFILE, …) say.
            schema: for the tables; made if it is not there.
            connections: open at most.
        """

        url: str = ""
        schema: Annotated[str, msgspec.Meta(min_length=1, max_length=63)] = "llmfw"
        connections: Annotated[int, msgspec.Meta(ge=1)] = 4

    conformance = "llmfw_postgres.conformance:PostgresFilesTests"  # what `llmfw check` runs

    def __init__(self, folder: Path | None, options: Options) -> None:
        self._db = Database(options.url, options.schema, options.connections, "files", MIGRATIONS)
        self._sweeping: asyncio.Task[None] | None = None
        self._swept_at = -SWEEP_S

    async def put(self, chunks: AsyncIterator[bytes], describe: Describe) -> FileRecord:
        content = await self._begin()
        try:
            record = describe(await self._write(content, chunks))
            await self._keep(record, content)
        except BaseException:
            await self._discard(content)
            raise
        self._sweep_soon()
        return record

    async def get(self, file_id: str) -> FileRecord:
        return _record((await self._row(file_id))[:-1])

    async def read(self, file_id: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        row = await self._row(file_id)
        content, size = row[-1], row[4]
        end = size if end is None else min(end, size)
        renewed_at = time.monotonic()
        while start < end:
            if time.monotonic() - renewed_at > RENEW_S:
                await self._execute(_RENEW, [KEEP_S, content])
                renewed_at = time.monotonic()
            number, skipped = divmod(start, CHUNK)
            piece = (await self._chunk(content, number))[skipped : skipped + end - start]
            yield piece
            start += len(piece)

    async def list(
        self,
        *,
        space: str = "files",
        purpose: str | None = None,
        tenants: Collection[str] | None = None,
        after: str | None = None,
        limit: int,
        newest_first: bool = True,
    ) -> Sequence[FileRecord]:
        where, args = ["space = %s"], [storable(space)]
        if purpose is not None:
            where.append("purpose = %s")
            args.append(storable(purpose))
        if tenants is not None:
            where.append("tenant = any(%s)")
            args.append([*map(storable, tenants)])
        if after is not None:
            where.append("id < %s" if newest_first else "id > %s")
            args.append(storable(after))
        order = "desc" if newest_first else "asc"
        query = f"select {_COLUMNS} from files where {' and '.join(where)} order by id {order} limit %s"
        return [_record(row) for row in await self._rows(query, [*args, limit])]

    async def delete(self, file_id: str) -> None:
        if not await self._execute("delete from files where id = %s", [storable(file_id)]):
            raise KeyError(file_id)
        self._sweep_soon()

    async def expired(self, now: float) -> Sequence[FileRecord]:
        query = f"select {_COLUMNS} from files where expires_at <= %s order by id"
        return [_record(row) for row in await self._rows(query, [int(now // 1)])]

    async def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        await self._db.close()

    async def _begin(self) -> int:
        """Make a content that nobody has yet."""
        query = "insert into contents (kept_until) values (now() + make_interval(secs => %s)) returning id"
        [[content]] = await self._rows(query, [KEEP_S])
        return content

    async def _write(self, content: int, chunks: AsyncIterator[bytes]) -> int:
        """Append what comes to a content; return how many bytes came."""
        waiting, number, size = bytearray(), 0, 0
        async for chunk in chunks:
            waiting += chunk
            size += len(chunk)
            while len(waiting) >= CHUNK:
                await self._append(content, number, bytes(waiting[:CHUNK]))
                del waiting[:CHUNK]
                number += 1
        if waiting:
            await self._append(content, number, bytes(waiting))
        return size

    async def _append(self, content: int, number: int, data: bytes) -> None:
        if not await self._execute(_APPEND, [KEEP_S, content, number, data]):
            raise _too_late()

    async def _keep(self, record: FileRecord, content: int) -> None:
        """Give a content to a file, new or not; the old one's is let go."""
        values = [getattr(record, name) for name in _COLUMNS.split(", ")]
        values = [storable(value) if isinstance(value, str) else value for value in values]
        async with self._db.transaction() as cursor:
            await cursor.execute(
                "update contents set kept_until = null where id = %s and kept_until is not null", [content]
            )
            if not cursor.rowcount:
                raise _too_late()
            await cursor.execute(_KEEP, [*values, content])

    async def _discard(self, content: int) -> None:
        """Remove a content, unless a file has it by now. Where that fails it goes when its time has passed."""
        query = "delete from contents where id = %s and kept_until is not null"
        with contextlib.suppress(LLMFWError):
            await self._execute(query, [content])

    async def _chunk(self, content: int, number: int) -> bytes:
        rows = await self._rows(
            "select data from chunks where content = %s and number = %s", [content, number]
        )
        if not rows:
            raise StorageError("the file was removed, and nobody read on for an hour")
        return rows[0][0]

    async def _row(self, file_id: str) -> Sequence[Any]:
        query = f"select {_COLUMNS}, content from files where id = %s"
        rows = await self._rows(query, [storable(file_id)])
        if not rows:
            raise KeyError(file_id)
        return rows[0]

    async def _rows(self, query: str, args: Sequence[Any]) -> Sequence[Sequence[Any]]:
        async with self._db.transaction() as cursor:
            await cursor.execute(query, args)
            return await cursor.fetchall()

    async def _execute(self, query: str, args: Sequence[Any]) -> int:
        """Return how many rows a statement has changed."""
        async with self._db.transaction() as cursor:
            await cursor.execute(query, args)
            return cursor.rowcount

    def _sweep_soon(self) -> None:
        """Remove what nobody wants, in the background, unless it was done lately."""
        if time.monotonic() - self._swept_at >= SWEEP_S:
            self._swept_at = time.monotonic()
            self._sweeping = asyncio.create_task(self._sweep())

    async def _sweep(self) -> None:
        try:
            while await self._execute(_SWEEP, []):
                pass
        except LLMFWError as error:
            logger.warning("bytes that nobody wants cannot be removed now: %s", error)


def _record(row: Sequence[Any]) -> FileRecord:
    values = [restored(value) if isinstance(value, str) else value for value in row]
    return FileRecord(**dict(zip(_COLUMNS.split(", "), values, strict=True)))


def _too_late() -> StorageError:
    return StorageError("nothing of the file came for an hour, and what had come was removed")
