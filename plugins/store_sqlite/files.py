"""The file store `sqlite`: bytes in a folder, and their records in a SQLite file.

The order of the steps guarantees that every record has its bytes. The bytes are synced to disk under a
temporary name before the record is committed, and get their final name afterwards. When a file is deleted, a
note to remove its bytes is committed in the same transaction, and the bytes are removed afterwards. So a
crash leaves either a temporary name or a note, and the next start removes only files with a temporary name or
a note. All other files without a record are kept: they may be newer than a restored copy of the database.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, TypeVar

import sqlite_utils

from llmfw.core import ConfigError, ContentLostError, Describe, FileRecord, FileStore

from .contents import Contents, Incoming, Stock, has_entries
from .database import Database, bindable, one_of
from .failures import code_of, explained, refusal
from .removals import Removals, create_removals
from .statements import StatementThread, to_the_end

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

APPLICATION_ID = 0x6C6C6D66  # "llmf"
PIECE = 2**18  # bytes per read or write
DISK_THREADS = 4
RESTORE = "bring it back from a copy, or delete the file"


def _first_tables(db: sqlite_utils.Database) -> None:
    """Create the table of files. `content` is the name of the file in the folder."""
    db.table("files").create(
        {
            "id": str,
            "space": str,
            "purpose": str,
            "filename": bytes,  # UTF-8 with lone surrogates, which SQLite's text type cannot store
            "bytes": int,
            "created_at": int,
            "expires_at": int,
            "content": str,
        },
        pk="id",
    )
    db.table("files").create_index(["space", "id"])
    db.table("files").create_index(["space", "purpose", "id"])
    db.table("files").create_index(["expires_at"])


def _tenants(db: sqlite_utils.Database) -> None:
    """Add the column `tenant`. Existing files belong to no tenant."""
    db.execute("alter table files add column tenant text not null default ''")
    db.table("files").create_index(["space", "tenant", "id"])


MIGRATIONS = (_first_tables, _tenants, create_removals)


class SqliteFiles(FileStore):
    """Keeps files in the folder `files`, and their records in `files.db`.

    Raises:
        ConfigError: from the constructor: no folder was given, the folder has files but no records, or
            `Database` raises it.
    """

    conformance: ClassVar = {"survives_reopening": True}

    def __init__(self, folder: Path | None) -> None:
        if folder is None:
            raise ConfigError("file store 'sqlite' needs a folder: give --storage DIR")
        self._folder = folder / "files"
        if _is_missing(folder / "files.db") and has_entries(self._folder):
            # Refuse to start: these files belong to another program, or their records were lost.
            raise ConfigError(
                f"{str(self._folder)!r} holds files, but the database 'files.db' next to it is missing or empty: "
                "name another folder, bring files.db back, or move the files away"
            )
        self._file = Database(folder / "files.db", APPLICATION_ID, MIGRATIONS)
        self._db = self._file.db
        try:
            self._contents = self._settled()
        except BaseException:
            self._file.close()
            raise
        self._statements = StatementThread(self._file)
        self._disk = ThreadPoolExecutor(DISK_THREADS, thread_name_prefix="files")

    def _settled(self) -> Contents:
        """Open the folder, finish an earlier process's work, and log differences from the database."""
        try:
            known = {row[0] for row in self._db.execute("select content from files")}
            if known and not self._folder.is_dir():
                raise ConfigError(
                    f"{str(self._folder)!r} is missing, but 'files.db' next to it lists {len(known)} files in it: restore the "
                    "folder, or name another one"
                )
            contents = Contents(self._folder)
            self._removals = Removals(self._file, contents)
            noted = self._removals.noted()
            stock = contents.settle(known, noted)
            self._removals.drop(noted)
        except (OSError, sqlite3.Error) as error:
            raise refusal(error, self._folder if isinstance(error, OSError) else self._file.path) from error
        self._report(stock)
        return contents

    def _report(self, stock: Stock) -> None:
        """Log which files are only in the folder, and which are only in the database."""
        if stock.unknown:
            logger.warning(
                "%s holds %d files that files.db does not know, such as %r; they are kept. If files.db is an older copy, "
                "stop the server and bring back the newest one; else move these files away",
                *(self._folder, len(stock.unknown), min(stock.unknown)),
            )
        if stock.missing:
            logger.warning(
                "%s lacks %d files that files.db knows, such as %r; reading them is an error. Bring them back from a copy, "
                "or let clients delete them",
                *(self._folder, len(stock.missing), min(stock.missing)),
            )

    async def put(self, chunks: AsyncIterator[bytes], describe: Describe) -> FileRecord:
        incoming = self._contents.incoming()
        try:
            size = await self._receive(incoming, chunks)
            record = describe(size)
            await self._on_disk(incoming.finish)
            await self._statements.run(self._keep, record, incoming)
        except BaseException:
            await self._on_disk(incoming.discard)
            raise
        await self._on_disk(self._sync_names)
        return record

    async def get(self, file_id: str) -> FileRecord:
        return _record(await self._statements.run(self._row, file_id))

    async def read(self, file_id: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        with contextlib.ExitStack() as stack:
            content, size = await self._statements.run(self._open, file_id, stack)
            end = size if end is None else min(end, size)
            while start < end:
                piece = await self._on_disk(os.pread, content.fileno(), min(PIECE, end - start), start)
                if not piece:
                    raise ContentLostError(
                        f"{content.name!r} was cut to {start} of its {size} bytes: {RESTORE}"
                    )
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
        where = ["space = :space"]
        if purpose is not None:
            where.append("purpose = :purpose")
        if after is not None:
            where.append("id < :after" if newest_first else "id > :after")
        order = "desc" if newest_first else "asc"
        args: dict[str, Any] = {"space": space, "purpose": purpose, "after": after, "limit": limit}
        if tenants is not None:
            where.append(one_of("tenant", tenants, args))
        query = f"select * from files where {' and '.join(where)} order by id {order} limit :limit"
        return await self._statements.run(self._records, query, args)

    async def delete(self, file_id: str) -> None:
        await self._statements.run(self._delete, file_id)

    async def expired(self, now: float) -> Sequence[FileRecord]:
        query = "select * from files where expires_at <= :now order by id"
        return await self._statements.run(self._records, query, {"now": now})

    async def close(self) -> None:
        await self._statements.run(self._removals.clear)
        await self._statements.close()
        self._disk.shutdown()

    async def _on_disk(self, work: Callable[..., ResultT], *args: Any) -> ResultT:
        try:
            return await to_the_end(self._disk, work, *args)
        except OSError as error:
            raise explained(error, self._folder) from error

    async def _receive(self, incoming: Incoming, chunks: AsyncIterator[bytes]) -> int:
        """Write all chunks, joining small ones; return the number of bytes."""
        size, written = 0, 0
        waiting: list[bytes] = []
        async for chunk in chunks:
            size += len(chunk)
            waiting.append(chunk)
            if size - written >= PIECE:
                await self._on_disk(incoming.write, b"".join(waiting))
                waiting.clear()
                written = size
        await self._on_disk(incoming.write, b"".join(waiting))
        return size

    def _keep(self, record: FileRecord, incoming: Incoming) -> None:
        """Commit a record whose bytes are written.

        If the record replaces another one, remove the other's bytes.
        """
        content = incoming.name(record.id)
        row = {name: getattr(record, name) for name in FileRecord.__struct_fields__}
        row |= {"filename": record.filename.encode("utf-8", "surrogatepass"), "content": content}
        try:
            with self._file.changes(synced=True) as db:
                old = self._found(record.id)
                db.table("files").insert(row, replace=True)
                if old is not None:
                    self._removals.note(old["content"])
        except sqlite3.Error as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_IOERR_FSYNC:
                incoming.release()  # the record may be committed; the next start finds out
            raise
        incoming.publish(content)
        if old is not None:
            self._removals.carry_out(old["content"])

    def _sync_names(self) -> None:
        """Sync the folder to make a file's final name durable.

        On failure, only warn: the temporary name is enough to find the file.
        """
        try:
            self._contents.sync()
        except OSError as error:
            logger.warning("%s cannot be synced: %s", self._folder, error)

    def _delete(self, file_id: str) -> None:
        content = self._row(file_id)["content"]
        try:
            self._forget(file_id, content)
        except sqlite3.Error as error:
            if code_of(error) != sqlite3.SQLITE_FULL or not self._contents.spend_reserve():
                raise
            self._forget(file_id, content)
        self._removals.carry_out(content)
        self._contents.reserve_room()

    def _forget(self, file_id: str, content: str) -> None:
        """Delete a file's record and note that its bytes must be removed, in one transaction."""
        with self._file.changes(synced=True) as db:
            db.execute("delete from files where id = ?", [file_id])
            self._removals.note(content)

    def _open(self, file_id: str, stack: contextlib.ExitStack) -> tuple[BinaryIO, int]:
        """Open a file until the stack is closed; return the open file and its size."""
        row = self._row(file_id)
        try:
            return stack.enter_context(self._contents.open(row["content"])), row["bytes"]
        except FileNotFoundError as error:
            if not self._folder.is_dir():  # perhaps its disk is not mounted
                raise
            raise ContentLostError(f"{error.filename!r} is gone: {RESTORE}") from error

    def _row(self, file_id: str) -> Mapping[str, Any]:
        row = self._found(file_id)
        if row is None:
            raise KeyError(file_id)
        return row

    def _found(self, file_id: str) -> Mapping[str, Any] | None:
        return next(self._db.query("select * from files where id = ?", [bindable(file_id)]), None)

    def _records(self, query: str, args: Mapping[str, str | int | float | None]) -> Sequence[FileRecord]:
        bound = {name: bindable(value) if isinstance(value, str) else value for name, value in args.items()}
        return [_record(row) for row in self._db.query(query, bound)]


def _record(row: Mapping[str, Any]) -> FileRecord:
    fields = {name: row[name] for name in FileRecord.__struct_fields__}
    return FileRecord(**fields | {"filename": row["filename"].decode("utf-8", "surrogatepass")})


def _is_missing(path: Path) -> bool:
    """Return whether the file does not exist or is empty; SQLite treats an empty file as a new database."""
    return not path.exists() or path.stat().st_size == 0
