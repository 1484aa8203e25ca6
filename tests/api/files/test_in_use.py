"""A file that a batch job still needs stays: it is not deleted, and does not expire."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec
import openai
import pytest

from llmfw.api.access.ownership import Ownership
from llmfw.api.files.expiry import FileExpiry
from llmfw.api.files.service import FileService, new_record
from llmfw.core.base.errors import (
    ConflictError,
    ContentLostError,
    NotFoundError,
    StorageDamagedError,
    StorageError,
    StorageFullError,
)
from llmfw.core.base.ids import sortable_id
from llmfw.core.interfaces.batch_store import BatchRecord
from llmfw.core.interfaces.file_store import FileRecord
from llmfw.plugins.store_memory.batches import MemoryBatches
from llmfw.plugins.store_memory.files import MemoryFiles

from ...doubles.echo_engine import EchoEngine
from ...doubles.serving import byte_tokenizer, serving


@pytest.fixture
def store():
    return MemoryFiles(None)


@pytest.fixture
def batches():
    return MemoryBatches(None)


@pytest.fixture
def files(store, batches):
    return FileService(store, batches, Ownership())


def job(file_id: str, status: str) -> BatchRecord:
    return BatchRecord(
        id=sortable_id("batch_"),
        endpoint="/v1/completions",
        input_file_id=file_id,
        completion_window="24h",
        status=status,
        created_at=1,
        expires_at=2,
    )


async def stored(store: MemoryFiles, expires_at: int | None = None, space: str = "files") -> str:
    record = new_record("a", "user_data", 1, None, "")

    async def content():
        yield b"x"

    def describe(size: int) -> FileRecord:
        return FileRecord(
            id=record.id,
            filename="a",
            purpose="batch",
            bytes=size,
            created_at=1,
            expires_at=expires_at,
            space=space,
        )

    return (await store.put(content(), describe)).id


@pytest.mark.parametrize("status", ["validating", "in_progress", "finalizing", "cancelling"])
async def test_an_unfinished_job_s_file_is_not_deleted(files, store, batches, status):
    file_id = await stored(store)
    running = job(file_id, status)
    await batches.create(running)
    with pytest.raises(ConflictError, match=f"{running.id}', which is {status}") as raised:
        await files.delete(file_id)
    assert raised.value.passing == (status in ("finalizing", "cancelling"))
    assert await files.get(file_id)


@pytest.mark.parametrize("status", ["completed", "failed", "expired", "cancelled"])
async def test_an_ended_job_s_file_is_deleted(files, store, batches, status):
    file_id = await stored(store)
    await batches.create(job(file_id, status))
    await files.delete(file_id)
    with pytest.raises(NotFoundError):
        await files.get(file_id)


async def test_the_longest_lasting_job_decides_on_retries(files, store, batches, monkeypatch):
    monkeypatch.setattr("llmfw.api.files.in_use.PAGE", 2)
    file_id = await stored(store)
    for status in ("in_progress", "cancelling", "cancelling", "completed", "cancelling"):
        await batches.create(job(file_id, status))
    with pytest.raises(ConflictError, match="in_progress") as raised:
        await files.delete(file_id)
    assert not raised.value.passing


async def test_creating_a_job_blocks_deletion_of_its_file(files, store, batches):
    file_id = await stored(store)
    async with files.deleting:
        going = asyncio.create_task(files.delete(file_id))
        await asyncio.sleep(0)
        await files.find(file_id)
        await batches.create(job(file_id, "validating"))
    with pytest.raises(ConflictError):
        await going


async def test_expired_files_are_removed_unless_in_use(files, store, batches):
    gone, later, needed = await stored(store, 100), await stored(store, 200), await stored(store, 100)
    part = await stored(store, 100, space="upload_1")
    running = job(needed, "in_progress")
    await batches.create(running)
    assert await files.remove_expired(150) == 2
    assert [record.id for record in await store.list(limit=9)] == [needed, later]
    assert gone not in [needed, later]
    assert await store.list(space="upload_1", limit=9) == []
    with pytest.raises(KeyError):
        await store.get(part)
    await batches.update(msgspec.structs.replace(running, status="completed"), expected="in_progress")
    assert await files.remove_expired(150) == 1


async def test_concurrent_removals_do_not_stop_expiry(files, store, monkeypatch):
    first, second = await stored(store, 100), await stored(store, 100)
    both = await store.expired(150)
    await store.delete(first)

    async def expired(now):
        return both

    monkeypatch.setattr(store, "expired", expired)
    assert await files.remove_expired(150) == 1
    with pytest.raises(KeyError):
        await store.get(second)


async def test_creating_a_batch_does_not_wait_for_expiry(files, store, monkeypatch):
    monkeypatch.setattr("llmfw.api.files.service.EXPIRED_AT_ONCE", 2)
    for _ in range(20):
        await stored(store, 100)
    delete = store.delete

    async def slowly(file_id):
        await asyncio.sleep(0.001)
        await delete(file_id)

    monkeypatch.setattr(store, "delete", slowly)
    going = asyncio.create_task(files.remove_expired(150))
    await asyncio.sleep(0.002)
    async with files.deleting:
        assert not going.done()
        assert len(await store.expired(150)) > 10
    assert await going == 20


async def test_expiry_continues_after_a_failure(files, store, monkeypatch, caplog):
    file_id = await stored(store, 100)
    expired, calls = store.expired, []

    async def failing(now):
        calls.append(now)
        if len(calls) == 1:
            raise StorageError("locked")
        return await expired(now)

    monkeypatch.setattr(store, "expired", failing)
    expiry = FileExpiry(files, every_s=0.01)
    expiry.start()
    deadline = time.monotonic() + 5
    while len(calls) < 3 and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    await expiry.close()
    assert "cannot be removed now: locked" in caplog.text
    with pytest.raises(NotFoundError):
        await files.get(file_id)


@contextmanager
def sdk_of(folder: Path, batches: MemoryBatches) -> Iterator[openai.OpenAI]:
    """Return the SDK's client for a server with these jobs."""
    stores = {"batches": batches}
    with serving(EchoEngine(), byte_tokenizer(folder), stores=stores) as server, server.openai() as sdk:
        yield sdk


@pytest.mark.parametrize(("status", "retries"), [("in_progress", False), ("cancelling", True)])
def test_the_error_says_whether_to_retry(tmp_path, batches, status, retries):
    with sdk_of(tmp_path, batches) as sdk:
        file = sdk.files.create(file=b"x", purpose="batch")
        asyncio.run(batches.create(job(file.id, status)))
        with pytest.raises(openai.ConflictError) as raised:
            sdk.files.delete(file.id)
    error, headers = raised.value, raised.value.response.headers
    assert (error.code, error.param) == ("file_in_use", "file_id")
    assert headers.get("x-should-retry") == (None if retries else "false")
    assert ("retry-after" in headers) == retries


def test_sdk_retries_delete_files_of_cancelled_jobs(tmp_path, batches):
    with sdk_of(tmp_path, batches) as sdk:
        file = sdk.files.create(file=b"x", purpose="batch")
        cancelling = job(file.id, "cancelling")
        asyncio.run(batches.create(cancelling))
        ended = msgspec.structs.replace(cancelling, status="cancelled")
        ending = threading.Timer(0.5, lambda: asyncio.run(batches.update(ended, expected="cancelling")))
        ending.start()
        assert sdk.with_options(max_retries=2).files.delete(file.id).deleted
        ending.join()


@pytest.mark.parametrize(
    ("error", "status", "code", "header"),
    [
        (StorageFullError("no inode left in /srv"), 507, "storage_full", ("x-should-retry", "false")),
        (ContentLostError("/srv/a is gone"), 500, "file_lost", ("x-should-retry", "false")),
        (StorageDamagedError("/srv/a is damaged"), 500, "storage_damaged", ("x-should-retry", "false")),
        (StorageError("/srv/a is locked"), 503, "storage_unavailable", ("retry-after", "1")),
    ],
)
def test_storage_errors_map_to_status_codes(
    tmp_path, store, monkeypatch, caplog, error, status, code, header
):
    """The log has the reason."""

    async def failing(chunks, describe):
        async for _ in chunks:
            raise error

    monkeypatch.setattr(store, "put", failing)
    with serving(EchoEngine(), byte_tokenizer(tmp_path), stores={"files": store}) as server:
        reply = httpx.post(
            f"{server.url}/v1/files", files={"file": ("a", b"x" * 10**7)}, data={"purpose": "batch"}
        )
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)
    assert "the server's storage" in reply.json()["error"]["message"]
    assert str(error) not in reply.text
    assert reply.headers[header[0]] == header[1]
    assert f"POST /v1/files failed: {error}" in caplog.text
    assert len({"x-should-retry", "retry-after"} & set(reply.headers)) == 1
