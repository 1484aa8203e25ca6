"""A schema of a PostgreSQL database, brought up to date, and connections to it. Knows nothing of what is in its tables."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator, Sequence

import psycopg
from psycopg import sql
from psycopg_pool import AsyncConnectionPool

from llmfw.core import ConfigError, StorageError, StorageFullError

LOCK = 0x6C6C6D6677  # "llmfw": who migrates holds it
WAIT_S = 10
"""For how long a call waits for a connection; then the store says that it cannot do it now."""
CONNECT = {"connect_timeout": WAIT_S, "client_encoding": "utf8", "application_name": "llmfw"}


class Database:
    """What both stores keep their tables in.

    Args:
        url: "postgresql://user@host/database"; "": what libpq's environment variables say.
        schema: is made if it is not there.
        connections: open at most.
        part: of the schema that the migrations are of; others have their own.
        migrations: statements; each brings a schema of one version to the next.

    Raises:
        ConfigError: from the constructor: the database cannot be used, with the reason.
    """

    def __init__(self, url: str, schema: str, connections: int, part: str, migrations: Sequence[str]) -> None:
        _check_user(url)
        self._url = url
        self._search_path = sql.SQL("set search_path to {}").format(sql.Identifier(schema))
        self._connections = connections
        self._pool: AsyncConnectionPool | None = None
        self._opening = asyncio.Lock()
        try:
            with psycopg.connect(url, **CONNECT) as connection:
                _migrate(connection, schema, part, migrations)
        except psycopg.Error as error:
            raise ConfigError(f"PostgreSQL cannot be used as storage: {_line(error)}") from error

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[psycopg.AsyncCursor]:
        """Give a cursor in a transaction, which is committed at the end, or rolled back by an exception.

        Raises:
            StorageError: PostgreSQL cannot do it now.
            StorageFullError: its disk is full.
        """
        with _explained():
            pool = await self._opened()
            async with pool.connection() as connection, connection.cursor(binary=True) as cursor:
                yield cursor

    async def close(self) -> None:
        """Close the connections."""
        if self._pool is not None:
            await self._pool.close()

    async def _opened(self) -> AsyncConnectionPool:
        """Return the pool; it belongs to the event loop on which it is first asked for."""
        async with self._opening:
            if self._pool is None:
                pool = AsyncConnectionPool(
                    self._url,
                    kwargs=CONNECT,
                    min_size=1,
                    max_size=self._connections,
                    timeout=WAIT_S,
                    open=False,
                    configure=self._configure,
                    check=AsyncConnectionPool.check_connection,  # it may have been restarted meanwhile
                )
                await pool.open()
                self._pool = pool
        return self._pool

    async def _configure(self, connection: psycopg.AsyncConnection) -> None:
        await connection.execute(self._search_path)
        await connection.commit()


def _check_user(url: str) -> None:
    """Raise a ConfigError for a URL whose user or password has to be encoded: libpq would show a part as the host's name."""
    found = re.match(r"postgres(?:ql)?://(.*)@", url)
    if found is not None and set(found[1]) & set("/?#@"):
        raise ConfigError(
            "the url has / ? # or @ before its last @; write them as %2F %3F %23 %40 (not shown: it may be a password)"
        )


def _migrate(connection: psycopg.Connection, schema: str, part: str, migrations: Sequence[str]) -> None:
    """Bring the tables of a part to the newest version; of servers that start at once, one does it."""
    connection.execute("select pg_advisory_xact_lock(%s)", [LOCK])
    if connection.info.parameter_status("server_encoding") != "UTF8":
        raise ConfigError("the encoding of the PostgreSQL database has to be UTF8")
    if not connection.execute("select to_regnamespace(quote_ident(%s))", [schema]).fetchone()[0]:
        connection.execute(sql.SQL("create schema {}").format(sql.Identifier(schema)))
    connection.execute(sql.SQL("set local search_path to {}").format(sql.Identifier(schema)))
    connection.execute(
        "create table if not exists migrations (part text, version int, applied_at timestamptz default now(), "
        "primary key (part, version))"
    )
    [version] = connection.execute(
        "select coalesce(max(version), 0) from migrations where part = %s", [part]
    ).fetchone()
    if version > len(migrations):
        raise ConfigError(f"the {part} in schema {schema!r} were written by a newer llmfw-postgres")
    for number, statements in enumerate(migrations[version:], version + 1):
        connection.execute(statements)
        connection.execute("insert into migrations (part, version) values (%s, %s)", [part, number])


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Raise what PostgreSQL cannot do now as the errors that a store may raise."""
    try:
        yield
    except psycopg.errors.DiskFull as error:
        raise StorageFullError(f"PostgreSQL has no room left: {_line(error)}") from error
    except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError) as error:
        raise StorageError(f"PostgreSQL cannot do it now: {_line(error)}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
