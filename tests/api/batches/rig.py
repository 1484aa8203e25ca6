"""The services of a server, without HTTP, around an echo engine; and stores that fail when they are told to."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from llmfw.api.batches.runner import BatchRunner
from llmfw.api.schemas.batches import CreateBatchRequest
from llmfw.api.services.model_components import ModelComponents
from llmfw.api.services.model_services import StartedModel
from llmfw.api.services.services import Services
from llmfw.api.services.stores import Stores
from llmfw.core.base.config import ServerConfig
from llmfw.core.base.errors import StorageError
from llmfw.core.base.ids import sortable_id
from llmfw.core.client.inproc import InprocEngineClient
from llmfw.core.interfaces.batch_store import ENDED, BatchRecord
from llmfw.core.interfaces.file_store import FileRecord, FileStore
from llmfw.core.interfaces.tokenizer import Tokenizer
from llmfw.plugins.chat_jinja.template import JinjaChatTemplate
from llmfw.plugins.store_sqlite.batches import SqliteBatches
from llmfw.plugins.store_sqlite.files import SqliteFiles

from ...doubles.echo_engine import EchoEngine
from ...doubles.serving import LAST_MESSAGE, SERVED_NAME, AnyGrammar, memory_stores

Line = dict[str, Any]


def chat_line(custom_id: str, text: str = "hi", **body: Any) -> Line:
    """Return an input line that asks for a chat of one message."""
    messages = [{"role": "user", "content": text}]
    url = "/v1/chat/completions"
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": {"messages": messages, **body}}


def chat_lines(num: int, text: str = "hi") -> list[Line]:
    return [chat_line(f"c{i}", f"{text}{i}") for i in range(num)]


def jsonl(lines: list[Line]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


async def put_file(files: FileStore, data: bytes, **fields: Any) -> str:
    """Store a file, and return its id."""

    async def chunks() -> AsyncIterator[bytes]:
        yield data

    known = {"id": sortable_id("file-"), "filename": "in.jsonl", "purpose": "batch", "created_at": 1} | fields
    plain_put = type(files).put  # without faults
    return (await plain_put(files, chunks(), lambda size: FileRecord(bytes=size, **known))).id


async def read_file(files: FileStore, file_id: str | None) -> bytes:
    """Return a file's bytes, none for no file."""
    return b"" if file_id is None else b"".join([piece async for piece in files.read(file_id)])


def parsed(data: bytes) -> list[Line]:
    """Return the lines of a file, each of which must be whole."""
    assert not data or data.endswith(b"\n")
    return [json.loads(line) for line in data.splitlines()]


class Faults:
    """Makes a store's methods fail.

    Attributes:
        fail: called with a method's name before it does anything, and for `add` and `update` also after it has
            done it, as "add!" and "update!"; raises what is to be raised.
        calls: how often each was called.
    """

    def __init__(self) -> None:
        self.fail: Callable[[str], None] = lambda name: None
        self.calls: Counter[str] = Counter()

    def wrap(self, store: Any, *names: str) -> Any:
        """Return the store, whose methods of these names may fail now."""
        for name in names:
            setattr(store, name, self._failing(name, getattr(store, name)))
        return store

    def _failing(self, name: str, method: Any) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            self.fail(name)
            return await method(*args, **kwargs)

        return call


def failing_times(name: str, times: int, error: Exception | None = None) -> Callable[[str], None]:
    """Return what lets the method of a name fail so many times."""
    left = times

    def fail(called: str) -> None:
        nonlocal left
        if called == name and left > 0:
            left -= 1
            raise error or StorageError(f"{name} cannot be done")

    return fail


class Rig:
    """A server's services, started; the same stores can be given to the next one."""

    def __init__(self, services: Services, engine: EchoEngine, stores: dict[str, Any]) -> None:
        self.services = services
        self.engine = engine
        self.batches, self.files = stores["batches"], stores["files"]

    async def create(self, lines: list[Line] | bytes, **fields: Any) -> str:
        """Make a batch of lines, and return its id."""
        data = lines if isinstance(lines, bytes) else jsonl(lines)
        body: dict[str, Any] = {"endpoint": "/v1/chat/completions", "completion_window": "24h"} | fields
        file_id = await put_file(self.files, data)
        batch = await self.services.batches.create(CreateBatchRequest(input_file_id=file_id, **body))
        return batch.id

    async def reaches(self, batch_id: str, *statuses: str, seconds: float = 60) -> BatchRecord:
        """Wait until a batch has one of these states."""
        deadline = time.monotonic() + seconds
        while (record := await self.batches.get(batch_id)).status not in statuses:
            assert time.monotonic() < deadline, record
            await asyncio.sleep(0.005)
        return record

    async def ended(self, batch_id: str, seconds: float = 60) -> BatchRecord:
        """Wait until a batch has ended."""
        return await self.reaches(batch_id, *ENDED, seconds=seconds)

    async def outcome(self, record: BatchRecord) -> tuple[list[Line], list[Line]]:
        """Return the lines of a batch's output and error file."""
        output = parsed(await read_file(self.files, record.output_file_id))
        return output, parsed(await read_file(self.files, record.error_file_id))

    async def ids(self, record: BatchRecord) -> list[str]:
        """Return the custom ids of both files together."""
        output, errors = await self.outcome(record)
        return sorted(line["custom_id"] for line in output + errors)


@asynccontextmanager
async def running(
    tokenizer: Tokenizer,
    stores: dict[str, Any],
    engine: EchoEngine | None = None,
    *,
    crash: bool = False,
    look_s: float = 0.02,
    lease_s: float = 30.0,
    **config: Any,
) -> AsyncIterator[Rig]:
    """Run a server's services until the block ends.

    Args:
        crash: end as a process does that is killed: nothing more reaches the stores.
    """
    engine = engine or EchoEngine()
    client = InprocEngineClient(engine)
    await client.start()
    parts = ModelComponents(
        tokenizer=tokenizer,
        chat_template=JinjaChatTemplate(LAST_MESSAGE, tokenizer.special_tokens),
        grammar_checker=AnyGrammar(),
    )
    server = ServerConfig(served_model_name=SERVED_NAME, **config)
    folder = None if server.storage is None else Path(server.storage)
    services = Services([StartedModel(client, parts, server)], Stores(**stores, folder=folder), server)
    runner: BatchRunner = services.batches._runner
    runner._look_s, runner._lease_s = look_s, lease_s
    runner._context = msgspec.structs.replace(runner._context, retry_s=0.01)
    await services.start()
    try:
        yield Rig(services, engine, stores)
    finally:
        await (kill(runner) if crash else services.batches.close())
        await services._memory.close()
        await client.close()


async def kill(runner: BatchRunner) -> None:
    """End a runner's tasks without their last words."""
    tasks = [*runner._tasks, *(task for _, task in runner._jobs.values())]
    for job, _ in runner._jobs.values():
        job._buffer._pending.clear()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    runner._context.marks.close()


def fresh_stores(kind: str, folder: Path) -> dict[str, Any]:
    """Return empty stores of a kind: "memory", or "sqlite" in a folder."""
    if kind == "memory":
        return memory_stores()
    return memory_stores() | {
        "files": SqliteFiles(folder / "store"),
        "batches": SqliteBatches(folder / "store"),
    }
