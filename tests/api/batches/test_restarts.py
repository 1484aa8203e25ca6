"""Jobs survive: restarts at every state, crashes, stores that fail, a second server on the same stores."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from llmfw.core.base.errors import StorageError, StorageFullError
from llmfw.core.interfaces.batch_store import BatchRecord
from llmfw.core.interfaces.tokenizer import Tokenizer

from ...doubles.echo_engine import EchoEngine
from .rig import Faults, Rig, chat_line, chat_lines, failing_times, fresh_stores, running

Stores = dict[str, Any]
BLOCKED_AT = {
    "validating": "read",
    "in_progress": "add",
    "finalizing": "put",
}
"""A state → the store's method that holds a job in it for as long as it fails."""

FILES, BATCHES = ("put", "get", "delete"), ("create", "get", "update", "lease")


def held(name: str) -> Any:
    def fail(called: str) -> None:
        if called == name:
            raise StorageFullError("the disk is full")

    return fail


def with_faults(stores: Stores) -> Faults:
    """Let the methods of stores fail by the returned faults, until they are told to."""
    faults = Faults()
    faults.wrap(stores["files"], "put")
    faults.wrap(stores["batches"], "get", "update", "lease", "list")
    real_read, real_results = stores["files"].read, stores["batches"].results

    async def read(*args: Any) -> Any:
        faults.calls["read"] += 1
        faults.fail("read")
        async for piece in real_read(*args):
            yield piece

    stores["files"].read = read
    stores["batches"].results = lambda batch_id: faults.wrap(real_results(batch_id), "add", "done")
    return faults


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Set the clock forward."""
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + seconds)


async def settled(rig: Rig, batch_id: str, ids: int) -> BatchRecord:
    """Wait for a batch's end; each of its custom ids must be in one file, once."""
    record = await rig.ended(batch_id)
    assert await rig.ids(record) == sorted(f"c{i}" for i in range(ids))
    assert record.num_completed + record.num_failed == record.num_total == ids
    return record


@pytest.mark.long
@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("cancel", [False, True])
@pytest.mark.parametrize("state", list(BLOCKED_AT))
async def test_a_job_continues_after_a_restart(
    tokenizer: Tokenizer, stores: Stores, state: str, cancel: bool, crash: bool
) -> None:
    faults = with_faults(stores)
    async with running(tokenizer, stores, crash=crash, lease_s=0.5) as rig:
        faults.fail = held(BLOCKED_AT[state])
        batch_id = await rig.create(chat_lines(30))
        await rig.reaches(batch_id, state)
        await asyncio.sleep(0.02)
        if cancel:
            assert (await rig.services.batches.cancel(batch_id)).status == "cancelling"
    faults.fail = lambda name: None
    async with running(tokenizer, stores) as rig:
        record = await settled(rig, batch_id, 30)
    assert record.status == ("cancelled" if cancel else "completed")


async def test_a_second_cancel_changes_nothing(
    tokenizer: Tokenizer, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = with_faults(stores)
    async with running(tokenizer, stores) as rig:
        faults.fail = held("put")
        batch_id = await rig.create(chat_lines(2))
        await rig.reaches(batch_id, "finalizing")
        first = await rig.services.batches.cancel(batch_id)
        later(monkeypatch, 2)  # a later time stamp would show
        second = await rig.services.batches.cancel(batch_id)
        faults.fail = lambda name: None
        assert (await settled(rig, batch_id, 2)).status == "cancelled"
    assert (first.status, second.status) == ("cancelling", "cancelling")
    assert first.cancelling_at == second.cancelling_at


@pytest.mark.long
@pytest.mark.parametrize("name", ["read", "add", "done", "put", "update", "lease"])
@pytest.mark.parametrize(
    "error", [StorageError("locked"), ZeroDivisionError("a defect")], ids=["storage", "defect"]
)
async def test_a_temporarily_failing_store_loses_nothing(
    tokenizer: Tokenizer, stores: Stores, name: str, error: Exception
) -> None:
    faults = with_faults(stores)
    async with running(tokenizer, stores) as rig:
        faults.fail = failing_times(name, 3, error)
        record = await settled(rig, await rig.create(chat_lines(250)), 250)
    assert record.status == "completed"
    assert faults.calls[name] > 3


@pytest.mark.long
async def test_no_lines_start_while_results_cannot_be_stored(tokenizer: Tokenizer, stores: Stores) -> None:
    faults = with_faults(stores)
    async with running(tokenizer, stores) as rig:
        faults.fail = held("add")
        batch_id = await rig.create(chat_lines(1000))
        await asyncio.sleep(0.5)
        assert len(rig.engine.requests) < 400
        faults.fail = lambda name: None
        await settled(rig, batch_id, 1000)
        assert len(rig.engine.requests) == 1000


async def test_finished_lines_do_not_run_again(tokenizer: Tokenizer, stores: Stores) -> None:
    lines = [*chat_lines(20), *(chat_line(f"c{i}", "x" * 300) for i in range(20, 25))]
    async with running(tokenizer, stores, EchoEngine(delay=0.01), crash=True, lease_s=0.5) as rig:
        batch_id = await rig.create(lines)
        while (await rig.batches.get(batch_id)).num_completed < 20:
            await asyncio.sleep(0.01)
    async with running(tokenizer, stores) as rig:
        await settled(rig, batch_id, 25)
        assert len(rig.engine.requests) == 5


async def test_the_log_names_a_resumed_job(
    tokenizer: Tokenizer, stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "llmfw.api.batches")
    async with running(tokenizer, stores, EchoEngine(delay=0.02), look_s=60) as rig:  # or a look takes it up
        batch_id = await rig.create([*chat_lines(3), chat_line("c3", "x" * 400)])
        while (await rig.batches.get(batch_id)).num_completed < 3:
            await asyncio.sleep(0.01)
    assert not any("taken up" in message for message in caplog.messages)
    async with running(tokenizer, stores) as rig:
        await rig.ended(batch_id)
    lines = [message for message in caplog.messages if "taken up" in message]
    assert lines == [f"Batch {batch_id} is taken up: in_progress, 3 of 4 lines"]


async def test_a_late_job_expires_after_a_restart(
    tokenizer: Tokenizer, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tokenizer, stores, EchoEngine(delay=0.02)) as rig:
        batch_id = await rig.create([chat_line("c0", "x" * 400)], completion_window="1h")
        await rig.reaches(batch_id, "in_progress")
    later(monkeypatch, 3601)
    async with running(tokenizer, stores) as rig:
        record = await settled(rig, batch_id, 1)
    assert record.status == "expired"


async def test_a_dying_engine_fails_no_line(tokenizer: Tokenizer, stores: Stores) -> None:
    async with running(tokenizer, stores, EchoEngine(delay=0.02)) as rig:
        batch_id = await rig.create([*chat_lines(5), chat_line("c5", "x" * 400)])
        await rig.reaches(batch_id, "in_progress")
        await asyncio.sleep(0.1)
        await rig.services.models.first.live.generator.client.close()
        await asyncio.sleep(0.1)
        assert (await rig.batches.get(batch_id)).status == "in_progress"
    async with running(tokenizer, stores) as rig:
        record = await settled(rig, batch_id, 6)
    assert record.num_failed == 0


async def test_two_servers_share_jobs_without_duplicates(tokenizer: Tokenizer, stores: Stores) -> None:
    async with running(tokenizer, stores) as one, running(tokenizer, stores) as two:
        ids = [await (one if i % 2 else two).create(chat_lines(40)) for i in range(6)]
        for batch_id in ids:
            await settled(one, batch_id, 40)
        assert len(one.engine.requests) + len(two.engine.requests) == 240
        assert one.engine.requests
        assert two.engine.requests


async def test_a_cancel_at_another_server_is_seen(tokenizer: Tokenizer, stores: Stores) -> None:
    async with running(tokenizer, stores, EchoEngine(delay=0.02)) as one, running(tokenizer, stores) as two:
        batch_id = await one.create([chat_line("c0", "x" * 400)])
        await one.reaches(batch_id, "in_progress")
        await two.services.batches.cancel(batch_id)
        assert (await settled(two, batch_id, 1)).status == "cancelled"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_job_without_input_keeps_its_results(tokenizer: Tokenizer, stores: Stores) -> None:
    lines = [*chat_lines(3), chat_line("c3", "x" * 400)]
    async with running(tokenizer, stores, EchoEngine(delay=0.02)) as rig:
        batch_id = await rig.create(lines)
        while (record := await rig.batches.get(batch_id)).num_completed < 3:
            await asyncio.sleep(0.01)
    await stores["files"].delete(record.input_file_id)
    async with running(tokenizer, stores) as rig:
        record = await rig.ended(batch_id)
        assert await rig.ids(record) == ["c0", "c1", "c2"]
    assert record.status == "failed"
    assert [error.code for error in record.errors] == ["file_not_found"]


@pytest.mark.parametrize("state", ["validating", "in_progress"])
async def test_a_lost_input_ends_its_job(tokenizer: Tokenizer, tmp_path: Path, state: str) -> None:
    stores = fresh_stores("sqlite", tmp_path)
    faults = with_faults(stores)
    async with running(tokenizer, stores) as rig:
        faults.fail = held(BLOCKED_AT[state])
        batch_id = await rig.create(chat_lines(3))
        await rig.reaches(batch_id, state)
    faults.fail = lambda name: None
    for content in (tmp_path / "store" / "files").iterdir():
        content.unlink()
    async with running(tokenizer, stores) as rig:
        record = await rig.ended(batch_id)
    assert record.status == "failed"
    assert [error.code for error in record.errors] == ["file_not_found"]
    assert "the server has lost the content of the input file" in record.errors[0].message
    await close(stores)


async def test_an_older_batches_db_removes_no_results(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """The job runs again, into files of its own."""
    stores = fresh_stores("sqlite", tmp_path)
    faults, folder = with_faults(stores), tmp_path / "store"
    async with running(tokenizer, stores) as rig:
        faults.fail = held("add")
        batch_id = await rig.create(chat_lines(3))
        await rig.reaches(batch_id, "in_progress")
        with contextlib.closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
            stores["batches"]._db.conn.backup(copy)
        faults.fail = lambda name: None
        first = await settled(rig, batch_id, 3)
    await close(stores)
    os.replace(tmp_path / "copy.db", folder / "batches.db")
    stores = fresh_stores("sqlite", tmp_path)
    async with running(tokenizer, stores) as rig:
        second = await settled(rig, batch_id, 3)
        assert second.output_file_id != first.output_file_id
        assert await rig.ids(first) == await rig.ids(second)
    await close(stores)


async def close(stores: Stores) -> None:
    for store in stores.values():
        await store.close()


async def test_a_persistent_defect_fails_only_its_job(
    tokenizer: Tokenizer, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def defect(*_: Any) -> Any:
        raise ZeroDivisionError("a defect")

    async with running(tokenizer, stores) as rig:
        ill = await rig.create([chat_line("c0", "x" * 300)])
        monkeypatch.setattr("llmfw.api.batches.line_run.LineRun.until", defect)
        record = await rig.ended(ill, 20)
        assert await rig.ids(record) in ([], ["c0"])
        monkeypatch.undo()
        await settled(rig, await rig.create(chat_lines(3)), 3)
