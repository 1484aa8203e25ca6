"""The promises of every file store, and those of this one."""

import asyncio
from functools import partial

import psycopg
import pytest
from llmfw_postgres import files
from llmfw_postgres.conformance import PostgresFilesTests, schema_of, schemas
from llmfw_postgres.files import CHUNK, PostgresFiles
from llmfw_postgres.texts import restored, storable

from llmfw.core import ConfigError, FileRecord, StorageError


@pytest.fixture
def open_files(url):
    yield from schemas(PostgresFiles, PostgresFiles.Options(url=url))


@pytest.fixture
def rows(url, tmp_path):
    """A function that returns the rows of a query in the test's schema."""

    def run(query, *args):
        with psycopg.connect(url, options=f"-c search_path={schema_of(tmp_path)}") as connection:
            cursor = connection.execute(query, args or None)
            return cursor.fetchall() if cursor.description else []

    return run


class TestPostgresFiles(PostgresFilesTests):
    @pytest.fixture
    def options(self, url):
        return PostgresFiles.Options(url=url)


def record_of(size, file_id="file-1"):
    return FileRecord(id=file_id, filename="a", purpose="batch", bytes=size, created_at=1)


async def pieces_of(*pieces):
    for piece in pieces:
        yield piece


async def read(store, file_id="file-1"):
    return b"".join([piece async for piece in store.read(file_id)])


@pytest.mark.parametrize(
    "text", ["plain", "a\\b\\0", "\0", "\udcff\ud83d", "\\udcff", "\\\\", "é\N{GRINNING FACE}"]
)
def test_any_text_survives_storage(text):
    assert restored(storable(text)) == text
    storable(text).encode()
    assert "\0" not in storable(text)


def test_one_connection_serves_reads_during_writes(url, tmp_path):
    async def run():
        options = PostgresFiles.Options(url=url, schema=schema_of(tmp_path), connections=1)
        store = PostgresFiles(None, options)
        await store.put(pieces_of(bytes(3 * CHUNK)), record_of)
        # As an upload of several parts is put together: from the store that it goes to.
        copying = store.put(store.read("file-1"), lambda size: record_of(size, "file-2"))
        await asyncio.wait_for(copying, 30)
        assert await read(store, "file-2") == bytes(3 * CHUNK)
        await store.close()

    asyncio.run(run())


def test_servers_read_the_files_of_each_other(open_files, tmp_path):
    async def run():
        one, other = open_files(tmp_path), open_files(tmp_path)
        await one.put(pieces_of(b"first"), record_of)
        assert await read(other) == b"first"
        reading = aiter(other.read("file-1"))
        await one.delete("file-1")
        with pytest.raises(KeyError):
            await anext(reading)  # it had not begun
        await one.close()
        await other.close()

    asyncio.run(run())


def test_concurrent_puts_keep_one_complete_file(open_files, tmp_path, rows):
    """The bytes of the replaced files are marked for removal."""

    async def run():
        stores = [open_files(tmp_path) for _ in range(2)]
        await asyncio.gather(*(stores[n % 2].put(pieces_of(b"%d" % n * CHUNK), record_of) for n in range(10)))
        assert (await read(stores[0])) in [b"%d" % n * CHUNK for n in range(10)]
        for store in stores:
            await store.close()

    asyncio.run(run())
    assert rows("select count(*) from contents where kept_until is null") == [(1,)]
    assert rows("select count(*) from contents") == [(10,)]


def test_unused_bytes_are_removed_after_their_time(open_files, tmp_path, rows):
    async def run():
        store = open_files(tmp_path)
        for number in (1, 2, 3):
            await store.put(pieces_of(bytes(CHUNK + 1)), partial(record_of, file_id=f"file-{number}"))
        await store.delete("file-1")
        await store.put(pieces_of(b"new"), lambda size: record_of(size, "file-2"))
        assert rows("select count(*) from chunks") == [(7,)]  # somebody may still read them
        rows("update contents set kept_until = now() - interval '1 second' where kept_until is not null")
        await store.close()
        store = open_files(tmp_path)
        await store.put(pieces_of(b"any"), lambda size: record_of(size, "file-4"))
        await store._sweeping
        assert await read(store, "file-2") == b"new"
        assert await read(store, "file-3") == bytes(CHUNK + 1)
        await store.close()

    asyncio.run(run())
    assert rows("select count(*) from contents where kept_until is not null") == [(0,)]
    assert rows("select count(*) from chunks") == [(4,)]


def test_a_slow_read_keeps_the_deleted_bytes(open_files, tmp_path, rows, monkeypatch):
    async def run():
        store = open_files(tmp_path)
        await store.put(pieces_of(bytes(2 * CHUNK)), record_of)
        reading = aiter(store.read("file-1"))
        await anext(reading)
        await store.delete("file-1")
        rows("update contents set kept_until = now() + interval '1 minute'")
        monkeypatch.setattr(files, "RENEW_S", 0)
        await anext(reading)
        await store.close()

    asyncio.run(run())
    assert rows("select kept_until > now() + interval '50 minutes' from contents") == [(True,)]


def test_an_upload_that_lost_its_bytes_fails(open_files, tmp_path, rows):
    async def slow():
        yield bytes(CHUNK)
        rows("delete from contents")
        yield bytes(CHUNK)

    async def run():
        store = open_files(tmp_path)
        with pytest.raises(StorageError, match="nothing of the file came for an hour"):
            await store.put(slow(), record_of)
        assert await store.list(limit=9) == []
        await store.close()

    asyncio.run(run())


def test_an_unreachable_database_is_a_config_error(tmp_path):
    with pytest.raises(ConfigError, match=r"PostgreSQL cannot be used as storage: .*No such file"):
        PostgresFiles(None, PostgresFiles.Options(url=f"postgresql:///x?host={tmp_path}"))


@pytest.mark.parametrize("password", ["pa#ss", "pa/ss", "pa@ss", "pa?ss"])
def test_a_password_in_plain_is_never_shown(password):
    with pytest.raises(ConfigError, match="write them as %2F") as error:
        PostgresFiles(None, PostgresFiles.Options(url=f"postgresql://ann:{password}@localhost/x"))
    assert password not in str(error.value)
    assert "ann" not in str(error.value)


def test_tables_of_a_newer_version_stay_unchanged(open_files, tmp_path, rows):
    asyncio.run(open_files(tmp_path).close())
    rows("insert into migrations (part, version) values ('files', 99)")
    with pytest.raises(ConfigError, match="written by a newer llmfw-postgres"):
        open_files(tmp_path)
    rows("delete from migrations where version = 99")
    asyncio.run(open_files(tmp_path).close())


def test_a_store_reconnects_after_connection_loss(open_files, tmp_path, rows):
    async def run():
        store = open_files(tmp_path)
        await store.put(pieces_of(b"data"), record_of)
        rows(
            "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and datname is not null"
        )
        assert await read(store) == b"data"
        await store.close()

    asyncio.run(run())
