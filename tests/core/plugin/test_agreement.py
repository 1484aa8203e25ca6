"""A store that returns something else than what was asked for fails, and nothing of it is served."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec
import pytest

from llmfw.core.base.errors import ComponentFailedError
from llmfw.core.interfaces.batch_store import BatchRecord, BatchResults, BatchStore
from llmfw.core.interfaces.file_store import FileRecord, FileStore
from llmfw.core.interfaces.response_store import ResponseRecord, ResponseStore
from llmfw.core.plugin.calls import ComponentCalls
from llmfw.core.plugin.guard import guarded
from llmfw.core.plugin.registry import Entry
from llmfw.plugins.store_memory.batches import MemoryBatches
from llmfw.plugins.store_memory.files import MemoryFiles
from llmfw.plugins.store_memory.responses import MemoryResponses

FILE = FileRecord(
    id="file-a", filename="a", purpose="batch", bytes=3, created_at=1, tenant="ann", expires_at=5
)
BATCH = BatchRecord(
    id="batch_a",
    endpoint="/v1/completions",
    input_file_id="file-a",
    completion_window="24h",
    status="completed",
    created_at=1,
    expires_at=2,
    tenant="ann",
)
TURN = ResponseRecord(id="resp_a", created_at=1, status="completed", response=b"{}", input=b"[]")
NEXT = msgspec.structs.replace(TURN, id="resp_b", previous="resp_a")


async def chunks() -> AsyncIterator[bytes]:
    yield b"abc"


def describe(size: int) -> FileRecord:
    return msgspec.structs.replace(FILE, bytes=size)


def made(store: type, interface: type, **methods: Any) -> Any:
    kind = {FileStore: "file_store", BatchStore: "batch_store", ResponseStore: "response_store"}[interface]
    entry = Entry(kind, "bad", "ext:Bad", "ext", "llmfw-ext", "1.2")
    given = (None, 2**20) if interface is ResponseStore else (None,)
    return guarded(type("Bad", (store,), methods), interface, ComponentCalls(entry))(*given)


def returning(name: str, value: Any) -> Callable[..., Any]:
    async def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return value

    method.__name__ = name
    return method


def files(name: str, value: Any) -> Any:
    return made(MemoryFiles, FileStore, **{name: returning(name, value)})


def batches(name: str, value: Any) -> Any:
    return made(MemoryBatches, BatchStore, **{name: returning(name, value)})


def responses(name: str, value: Any) -> Any:
    return made(MemoryResponses, ResponseStore, **{name: returning(name, value)})


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "another file": (lambda: files("get", FILE).get("file-b"), "the record of 'file-a' in place of 'file-b'"),
    "a file of another tenant": (lambda: files("list", [FILE]).list(tenants=["bob"], limit=9), "of a tenant"),
    "a file of another space": (lambda: files("list", [FILE]).list(space="x", limit=9), "the space 'files'"),
    "a file of another purpose": (
        lambda: files("list", [FILE]).list(purpose="x", limit=9),
        "purpose 'batch'",
    ),
    "too many files": (lambda: files("list", [FILE] * 2).list(limit=1), "2 records, and the limit is 1"),
    "a file that has not expired": (lambda: files("expired", [FILE]).expired(4.0), "which expires at 5"),
    "another job": (lambda: batches("get", BATCH).get("batch_b"), "'batch_a' in place of 'batch_b'"),
    "a job of another tenant": (
        lambda: batches("list", [BATCH]).list(tenants=["bob"], limit=9),
        "of a tenant",
    ),
    "an ended job": (lambda: batches("list", [BATCH]).list(unfinished=True, limit=9), "as unfinished"),
    "another response": (lambda: responses("get", TURN).get("resp_b"), "'resp_a' in place of 'resp_b'"),
    "another conversation": (lambda: responses("conversation", [TURN]).conversation("resp_b"), "ends with"),
    "turns in reverse": (
        lambda: responses("conversation", [NEXT, TURN]).conversation("resp_a"),
        "after None",
    ),
    "an ended response": (lambda: responses("unfinished", [TURN]).unfinished(), "as unfinished"),
    "another file than described": (lambda: files("put", FILE).put(chunks(), describe), "without a call"),
}


@pytest.mark.parametrize("what", WRONG)
async def test_a_store_that_returns_another_record_fails(what: str, caplog: pytest.LogCaptureFixture) -> None:
    call, words = WRONG[what]
    with pytest.raises(ComponentFailedError, match="of plugin 'ext' failed on this request"):
        await call()
    assert words in caplog.text


@pytest.mark.parametrize(
    ("size", "is_read", "words"),
    [(0, False, "before it had read all chunks"), (4, True, "with the size 4; the chunks have 3 bytes")],
)
async def test_a_client_is_not_blamed_for_a_store(
    size: int, is_read: bool, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def put(
        self: Any, chunks: AsyncIterator[bytes], describe: Callable[[int], FileRecord]
    ) -> FileRecord:
        _ = [chunk async for chunk in chunks] if is_read else []
        return describe(size)

    with pytest.raises(ComponentFailedError):
        await made(MemoryFiles, FileStore, put=put).put(chunks(), describe)
    assert words in caplog.text


async def test_a_put_returns_what_describe_returned() -> None:
    store = made(MemoryFiles, FileStore)
    assert await store.put(chunks(), describe) == FILE
    assert await store.get("file-a") == FILE
    assert await store.list(tenants=["ann"], limit=1) == [FILE]
    assert b"".join([piece async for piece in store.read("file-a", 1, 3)]) == b"bc"


@pytest.mark.parametrize("content", [b"a", b"abcd"])
async def test_a_read_yields_the_bytes_asked_for(content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def read(self: Any, file_id: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        yield content

    store = made(MemoryFiles, FileStore, read=read)
    with pytest.raises(ComponentFailedError):
        _ = [piece async for piece in store.read("file-a", 0, 3)]
    assert "did not yield the 3 bytes" in caplog.text


async def test_a_put_may_raise_no_keyerror() -> None:
    async def put(self: Any, chunks: Any, describe: Any) -> FileRecord:
        raise KeyError("defect")

    with pytest.raises(ComponentFailedError):
        await made(MemoryFiles, FileStore, put=put).put(chunks(), describe)


async def test_right_records_are_served() -> None:
    store = responses("conversation", [TURN, NEXT])
    found: Sequence[ResponseRecord] = await store.conversation("resp_b")
    assert [record.id for record in found] == ["resp_a", "resp_b"]
    with pytest.raises(KeyError):
        await made(MemoryBatches, BatchStore).get("batch_x")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"a": 1}\n{"a": 2}', "several lines in place of one"),
        (b"{{{", "a line that is not JSON"),
        (b"", "not JSON"),
    ],
)
async def test_a_result_is_one_line(line: bytes, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    class Results(BatchResults):
        async def add(self, results: object) -> None: ...

        async def done(self) -> set[int]:
            return set()

        async def lines(self, *, failed: bool) -> AsyncIterator[list[bytes]]:
            yield [b"{}", line]

    store = made(MemoryBatches, BatchStore, results=lambda self, batch_id: Results())
    with pytest.raises(ComponentFailedError, match="batch store 'bad'"):
        [lines async for lines in store.results("batch_a").lines(failed=False)]
    assert reason in caplog.text
