"""Both response stores do as a dictionary does, and the one on disk survives what happens to servers."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from llmfw.core.base.errors import ConfigError
from llmfw.core.interfaces.response_store import ResponseRecord, ResponseStore
from llmfw.plugins.store_memory.responses import MemoryResponses
from llmfw.plugins.store_sqlite import responses as sqlite_responses
from llmfw.plugins.store_sqlite.responses import SqliteResponses

from ..length import of_length

MAX_BYTES = 100
STORES = [MemoryResponses, pytest.param(SqliteResponses, marks=pytest.mark.slow)]


def record(
    id: str, previous: str | None = None, at: float = 1.0, size: int = 10, **fields: Any
) -> ResponseRecord:
    given = {"status": "completed", "response": b"r" * size, "input": b"", **fields}
    return ResponseRecord(id=id, previous=previous, created_at=at, **given)


class Model:
    """What a store has to hold, in the plainest way."""

    def __init__(self) -> None:
        self.records: dict[str, ResponseRecord] = {}
        self.roots: dict[str, str] = {}
        self.last: dict[str, float] = {}

    def put(self, new: ResponseRecord) -> None:
        root = self.roots.get(new.id) or self.roots.get(new.previous or "", new.id)
        self.records[new.id], self.roots[new.id] = new, root
        self.last[root] = max(self.last.get(root, 0), new.created_at)
        while sum(old.size for old in self.records.values()) > MAX_BYTES:
            self.remove_conversation(min(self.last, key=lambda root: (self.last[root], root)))

    def delete(self, id: str) -> None:
        root = self.roots.pop(id)
        del self.records[id]
        if root not in self.roots.values():
            del self.last[root]

    def remove_conversation(self, root: str) -> int:
        ids = [id for id in self.records if self.roots[id] == root]
        for id in ids:
            self.delete(id)
        return len(ids)


class Machine(RuleBasedStateMachine):
    """Does the same to a store and to the model."""

    kind: type[ResponseStore]

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.model = Model()
        self.names = iter(range(10**9))
        self.open()

    def open(self) -> None:
        self.store = self.kind(Path(self.folder.name), MAX_BYTES)

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    @rule(
        data=st.data(),
        at=st.integers(0, 20),
        size=st.integers(0, 60),
        status=st.sampled_from(["queued", "failed"]),
    )
    def put_a_new_one(self, data: st.DataObject, at: int, size: int, status: str) -> None:
        previous = data.draw(st.sampled_from([None, *self.model.records]))
        new = record(f"resp_{next(self.names)}", previous, at, size, status=status)
        self.do(self.store.put(new))
        self.model.put(new)

    @precondition(lambda self: self.model.records)
    @rule(data=st.data(), size=st.integers(0, 60))
    def replace(self, data: st.DataObject, size: int) -> None:
        old = data.draw(st.sampled_from([*self.model.records.values()]))
        new = record(old.id, old.previous, old.created_at, size)
        self.do(self.store.put(new))
        self.model.put(new)

    @precondition(lambda self: self.model.records)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from([*self.model.records]))
        self.do(self.store.delete(id))
        self.model.delete(id)
        for method in (self.store.get, self.store.delete, self.store.conversation):
            with pytest.raises(KeyError):
                self.do(method(id))

    @rule(before=st.integers(0, 21))
    def purge(self, before: int) -> None:
        old = [root for root, last in self.model.last.items() if last < before]
        assert self.do(self.store.purge(before)) == sum(map(self.model.remove_conversation, old))

    @rule()
    def reopen(self) -> None:
        if self.kind is SqliteResponses:
            self.do(self.store.close())
            self.open()

    @precondition(lambda self: self.model.records)
    @rule(data=st.data())
    def walk_a_conversation(self, data: st.DataObject) -> None:
        found = [data.draw(st.sampled_from([*self.model.records.values()]))]
        while (previous := found[0].previous) in self.model.records:
            found.insert(0, self.model.records[previous])
        if previous is None:
            assert self.do(self.store.conversation(found[-1].id)) == found
        else:
            with pytest.raises(KeyError, match=previous):
                self.do(self.store.conversation(found[-1].id))

    @invariant()
    def all_are_there(self) -> None:
        found = {id: self.do(self.store.get(id)) for id in self.model.records}
        assert found == self.model.records
        running = {old.id for old in self.model.records.values() if old.status == "queued"}
        assert {old.id for old in self.do(self.store.unfinished())} == running

    def teardown(self) -> None:
        self.do(self.store.close())
        self.loop.close()
        self.folder.cleanup()


@pytest.mark.parametrize("kind", STORES)
def test_a_store_behaves_like_a_dictionary(kind: type[ResponseStore]) -> None:
    machine: Any = type(f"Machine{kind.__name__}", (Machine,), {"kind": kind})
    machine.TestCase.settings = settings(max_examples=of_length(8, 20), stateful_step_count=25, deadline=None)
    machine.TestCase().runTest()


@pytest.fixture
def reopened(tmp_path: Path) -> Iterator[Callable[[], ResponseStore]]:
    """A function that closes the store of this test, if it is open, and opens it again."""
    stores: list[ResponseStore] = []

    def reopen() -> ResponseStore:
        if stores:
            asyncio.run(stores.pop().close())
        stores.append(SqliteResponses(tmp_path / "new folder", 2**20))
        return stores[0]

    yield reopen
    asyncio.run(stores[0].close())


async def put_all(store: ResponseStore, *records: ResponseRecord) -> None:
    for new in records:
        await store.put(new)


WRITER = """
import asyncio, itertools, sys
from pathlib import Path
from llmfw.core.interfaces.response_store import ResponseRecord
from llmfw.plugins.store_sqlite.responses import SqliteResponses

async def write():
    store = SqliteResponses(Path(sys.argv[1]), 2**30)
    for i in itertools.count():
        body = b"%d" % i * 1000
        await store.put(ResponseRecord(id=f"resp_{i}", created_at=i, status="done", response=body, input=b"[]"))
        print(i, flush=True)

asyncio.run(write())
"""


def test_stored_responses_survive_a_kill(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(50)]
        os.kill(writer.pid, signal.SIGKILL)
        last = int([*lines, *writer.stdout][-1])
    store = SqliteResponses(tmp_path, 2**30)

    async def check() -> None:
        for i in range(last + 1):
            assert (await store.get(f"resp_{i}")).response == b"%d" % i * 1000
        await store.close()

    asyncio.run(check())
    with sqlite3.connect(tmp_path / "responses.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_a_folder_in_use_is_refused(reopened: Callable[[], ResponseStore], tmp_path: Path) -> None:
    reopened()
    with pytest.raises(ConfigError, match="in use by another server"):
        SqliteResponses(tmp_path / "new folder", 2**20)


def test_other_users_cannot_read_stored_files(reopened: Callable[[], ResponseStore], tmp_path: Path) -> None:
    asyncio.run(reopened().put(record("resp_1")))
    files = [tmp_path / "new folder", *(tmp_path / "new folder").iterdir()]
    assert len(files) >= 4
    assert all(file.stat().st_mode & 0o077 == 0 for file in files)


def test_the_sqlite_store_requires_a_folder() -> None:
    with pytest.raises(ConfigError, match="--storage DIR"):
        SqliteResponses(None, 2**20)


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        (f"PRAGMA application_id = {sqlite_responses.APPLICATION_ID}; PRAGMA user_version = 99", "format 99"),
        ("create table recipes (name text)", "not one of this kind"),
    ],
)
def test_an_incompatible_file_is_refused(tmp_path: Path, statements: str, reason: str) -> None:
    connection = sqlite3.connect(tmp_path / "responses.db")
    connection.executescript(statements)
    connection.close()
    with pytest.raises(ConfigError, match=reason):
        SqliteResponses(tmp_path, 2**20)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "responses.db").write_text("not a database" * 100)
    with pytest.raises(ConfigError, match=r"is damaged \(file is not a database\)"):
        SqliteResponses(tmp_path, 2**20)


def test_an_older_file_is_migrated_with_its_contents(
    reopened: Callable[[], ResponseStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(reopened().put(record("resp_1")))
    newer = (*sqlite_responses.MIGRATIONS, lambda db: db.table("responses").add_column("note", str))
    monkeypatch.setattr(sqlite_responses, "MIGRATIONS", newer)
    assert asyncio.run(reopened().get("resp_1")) == record("resp_1")
    with sqlite3.connect(tmp_path / "new folder" / "responses.db") as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(newer),)
    connection.close()


def test_a_failed_migration_changes_nothing(
    reopened: Callable[[], ResponseStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(reopened().put(record("resp_1")))

    def drop_and_fail(db: Any) -> None:
        db.table("responses").drop()
        db.execute("select no_such_column from conversations")

    with monkeypatch.context() as patch:
        patch.setattr(sqlite_responses, "MIGRATIONS", (*sqlite_responses.MIGRATIONS, drop_and_fail))
        with pytest.raises(ConfigError, match="no_such_column"):
            reopened()
    assert asyncio.run(reopened().get("resp_1")) == record("resp_1")


def test_freed_space_is_returned_to_the_system(reopened: Callable[[], ResponseStore], tmp_path: Path) -> None:
    asyncio.run(put_all(reopened(), *(record(f"resp_{i}", at=i, size=50_000) for i in range(20))))
    reopened()
    before = (tmp_path / "new folder" / "responses.db").stat().st_size
    assert asyncio.run(reopened().purge(19)) == 19
    reopened()
    assert (tmp_path / "new folder" / "responses.db").stat().st_size < before / 5
