"""/v1/uploads: parts become one file, once, whatever happens in between."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import Upload
from openai.types.uploads import UploadPart

from llmfw.api.access.ownership import Ownership
from llmfw.api.files.form import FileForm
from llmfw.api.files.service import FileService
from llmfw.api.files.uploads import UploadService, part_form
from llmfw.api.schemas.files import CompleteRequest, UploadRequest
from llmfw.api.schemas.files import Upload as UploadReply
from llmfw.core.base.errors import ConflictError, NotFoundError, RequestError, StorageError
from llmfw.plugins.store_memory.batches import MemoryBatches
from llmfw.plugins.store_memory.files import MemoryFiles
from llmfw.plugins.store_sqlite.batches import SqliteBatches
from llmfw.plugins.store_sqlite.files import SqliteFiles

from ...doubles.echo_engine import EchoEngine
from ...doubles.serving import byte_tokenizer, serving
from .forms import BOUNDARY, form, part

MIB = 2**20


@pytest.fixture
def store():
    return MemoryFiles(None)


@pytest.fixture
def uploads(store):
    return UploadService(store, Ownership())


def data(content: bytes) -> FileForm:
    """Return the form that brings a part."""

    async def arriving() -> AsyncIterator[bytes]:
        yield form(part("data", content))

    return part_form(arriving(), BOUNDARY)


async def begin(uploads: UploadService, *contents: bytes, size: int | None = None) -> tuple[str, list[str]]:
    """Return the ids of a new upload and its parts."""
    size = sum(map(len, contents)) if size is None else size
    upload = await uploads.create(UploadRequest(filename="a.jsonl", purpose="batch", bytes=size))
    return upload.id, [(await uploads.add_part(upload.id, data(content))).id for content in contents]


async def left(store: MemoryFiles, upload_id: str) -> int:
    return len(await store.list(space=upload_id, limit=99))


async def content_of(store: MemoryFiles, file_id: str) -> bytes:
    return b"".join([piece async for piece in store.read(file_id)])


def test_the_sdk_uploads_a_file_in_chunks(sdk):
    content = bytes(range(256)) * 1000
    digest = hashlib.md5(content).hexdigest()
    upload = sdk.uploads.upload_file_chunked(
        file=content,
        filename="päth.jsonl",
        bytes=len(content),
        mime_type="text/jsonl",
        purpose="batch",
        part_size=100_000,
        md5=digest,
    )
    assert Upload.model_validate(upload.model_dump(exclude_unset=True), strict=True).status == "completed"
    assert (upload.file.filename, upload.file.bytes) == ("päth.jsonl", len(content))
    assert upload.file.expires_at - upload.file.created_at == 30 * 24 * 3600
    assert sdk.files.retrieve(upload.file.id) == upload.file
    assert sdk.files.content(upload.file.id).read() == content


def test_uploads_match_the_sdk_s_types(sdk):
    upload = sdk.uploads.create(
        bytes=3,
        filename="a",
        mime_type="text/plain",
        purpose="user_data",
        expires_after={"anchor": "created_at", "seconds": 7200},
    )
    added = sdk.uploads.parts.create(upload.id, data=b"xyz")
    assert Upload.model_validate(upload.model_dump(exclude_unset=True), strict=True).status == "pending"
    assert upload.expires_at == upload.created_at + 3600
    assert UploadPart.model_validate(added.model_dump(exclude_unset=True), strict=True).upload_id == upload.id
    file = sdk.uploads.complete(upload.id, part_ids=[added.id]).file
    assert file.expires_at == file.created_at + 7200


def test_a_cancelled_upload_accepts_no_parts(sdk):
    upload = sdk.uploads.create(bytes=1, filename="a", mime_type="x", purpose="batch")
    added = sdk.uploads.parts.create(upload.id, data=b"x")
    assert sdk.uploads.cancel(upload.id).status == "cancelled"
    for call in (
        lambda: sdk.uploads.parts.create(upload.id, data=b"x"),
        lambda: sdk.uploads.complete(upload.id, part_ids=[added.id]),
        lambda: sdk.uploads.cancel(upload.id),
    ):
        with pytest.raises(openai.BadRequestError, match="is cancelled") as raised:
            call()
        assert raised.value.code == "upload_cancelled"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"bytes": 0}, "bytes"),
        ({"bytes": 512 * MIB + 1}, "bytes"),
        ({"bytes": "many"}, "bytes"),
        ({"purpose": "batch_output"}, "purpose"),
        ({"filename": ""}, "filename"),
        ({"expires_after": {"anchor": "created_at", "seconds": 1}}, "expires_after.seconds"),
        ({"expires_after": {"anchor": "now", "seconds": 3600}}, "expires_after.anchor"),
        ({"expires_after": {"seconds": 3600}}, "expires_after.anchor"),
    ],
)
def test_a_wrong_upload_names_the_field(server, fields, param):
    body = {"bytes": 1, "filename": "a", "mime_type": "x", "purpose": "batch"} | fields
    reply = server.post("/v1/uploads", body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


def test_an_upload_part_has_its_own_limit(sdk, monkeypatch):
    monkeypatch.setattr("llmfw.api.files.uploads.MAX_PART_BYTES", MIB)
    upload = sdk.uploads.create(bytes=1, filename="a", mime_type="x", purpose="batch")
    assert sdk.uploads.parts.create(upload.id, data=bytes(MIB))
    with pytest.raises(openai.APIStatusError, match="at most 1048576 bytes") as raised:
        sdk.uploads.parts.create(upload.id, data=bytes(MIB + 1))
    assert raised.value.status_code == 413


@given(st.lists(st.binary(min_size=1), min_size=1, max_size=5), st.randoms())
def test_the_file_joins_parts_in_given_order(contents, random):
    async def run() -> None:
        store = MemoryFiles(None)
        uploads = UploadService(store, Ownership())
        upload_id, part_ids = await begin(uploads, *contents)
        order = list(range(len(contents)))
        random.shuffle(order)
        upload = await uploads.complete(upload_id, CompleteRequest(part_ids=[part_ids[i] for i in order]))
        assert await content_of(store, upload.file.id) == b"".join(contents[i] for i in order)
        assert await left(store, upload_id) == 0
        await store.close()

    asyncio.run(run())


async def test_wrong_parts_are_refused_without_loss(uploads, store):
    foreign = (await begin(uploads, b"xy"))[1][0]
    upload_id, (first, second) = await begin(uploads, b"ab", b"cd")
    for part_ids, words in [
        ([first], "have 2 bytes together; the upload was announced with 4"),
        ([], "have 0 bytes"),
        ([first, first], "there twice"),
        ([first, foreign], "no part of upload"),
        ([first, "part_x"], "no part of upload"),
        ([first, upload_id], "no part of upload"),
    ]:
        with pytest.raises(RequestError, match=words):
            await uploads.complete(upload_id, CompleteRequest(part_ids=part_ids))
    with pytest.raises(RequestError, match="md5 is 'abc'"):
        await uploads.complete(upload_id, CompleteRequest(part_ids=[first, second], md5="abc"))
    assert await store.list(limit=9) == []
    digest = hashlib.md5(b"abcd").hexdigest().upper()
    upload = await uploads.complete(upload_id, CompleteRequest(part_ids=[first, second], md5=digest))
    assert await content_of(store, upload.file.id) == b"abcd"


async def test_unnamed_parts_are_deleted_on_completion(uploads, store):
    upload_id, (first, _) = await begin(uploads, b"ab", b"ab", size=2)
    await uploads.complete(upload_id, CompleteRequest(part_ids=[first]))
    assert await left(store, upload_id) == 0


async def test_completing_again_names_the_file(uploads):
    upload_id, part_ids = await begin(uploads, b"ab")
    done = await uploads.complete(upload_id, CompleteRequest(part_ids=part_ids))
    with pytest.raises(RequestError, match=f"is completed; its file is '{done.file.id}'"):
        await uploads.complete(upload_id, CompleteRequest(part_ids=part_ids))
    with pytest.raises(RequestError, match="is completed"):
        await uploads.cancel(upload_id)


async def test_one_of_several_concurrent_completions_succeeds(uploads, store):
    upload_id, part_ids = await begin(uploads, b"ab")
    body = CompleteRequest(part_ids=part_ids)
    results = await asyncio.gather(
        *(uploads.complete(upload_id, body) for _ in range(3)),
        uploads.cancel(upload_id),
        return_exceptions=True,
    )
    [done] = [result for result in results if isinstance(result, UploadReply)]
    assert all(isinstance(result, ConflictError | RequestError) for result in results if result is not done)
    files = [file.id for file in await store.list(limit=9)]
    assert files == ([done.file.id] if done.status == "completed" else [])


async def test_a_late_part_leaves_nothing(uploads, store):
    upload_id, part_ids = await begin(uploads, b"ab")
    arrived = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        await arrived.wait()
        yield form(part("data", b"late"))

    late = asyncio.create_task(uploads.add_part(upload_id, part_form(slow(), BOUNDARY)))
    await asyncio.sleep(0)
    await uploads.complete(upload_id, CompleteRequest(part_ids=part_ids))
    arrived.set()
    with pytest.raises(RequestError, match="is completed"):
        await late
    assert await left(store, upload_id) == 0


async def test_an_upload_survives_a_server_restart(store):
    upload_id, part_ids = await begin(UploadService(store, Ownership()), b"ab", b"cd")
    upload = await UploadService(store, Ownership()).complete(upload_id, CompleteRequest(part_ids=part_ids))
    assert await content_of(store, upload.file.id) == b"abcd"


async def crash_while_completing(
    store: MemoryFiles, monkeypatch: pytest.MonkeyPatch, writes: int
) -> tuple[str, list[str]]:
    """Return an upload whose completion ended after so many writes to the store."""
    upload_id, part_ids = await begin(UploadService(store, Ownership()), b"ab", b"cd")
    put, done = store.put, []

    async def crashing(chunks, describe):
        if len(done) == writes:
            raise StorageError("crash")
        done.append(await put(chunks, describe))
        return done[-1]

    with monkeypatch.context() as patch:
        patch.setattr(store, "put", crashing)
        with pytest.raises(StorageError):
            await UploadService(store, Ownership()).complete(upload_id, CompleteRequest(part_ids=part_ids))
    return upload_id, part_ids


@pytest.mark.parametrize("writes", [0, 1, 2])
async def test_after_a_crash_it_is_completed_once(store, monkeypatch, writes):
    upload_id, part_ids = await crash_while_completing(store, monkeypatch, writes)
    upload = await UploadService(store, Ownership()).complete(upload_id, CompleteRequest(part_ids=part_ids))
    assert [file.id for file in await store.list(limit=9)] == [upload.file.id]
    assert await content_of(store, upload.file.id) == b"abcd"
    assert await left(store, upload_id) == 0


@pytest.mark.parametrize("writes", [0, 1])
async def test_after_a_crash_it_can_be_cancelled(store, monkeypatch, writes):
    upload_id, _ = await crash_while_completing(store, monkeypatch, writes)
    assert (await UploadService(store, Ownership()).cancel(upload_id)).status == "cancelled"
    assert await store.list(limit=9) == []
    assert await left(store, upload_id) == 0


async def test_a_file_stored_before_a_crash_stays(store, monkeypatch):
    upload_id, _ = await crash_while_completing(store, monkeypatch, 2)
    [file] = await store.list(limit=9)
    with pytest.raises(RequestError, match=f"is completed; its file is '{file.id}'"):
        await UploadService(store, Ownership()).cancel(upload_id)
    assert await store.list(limit=9) == [file]
    assert await left(store, upload_id) == 0


async def test_uploads_and_their_parts_expire(uploads, store, monkeypatch):
    upload_id, part_ids = await begin(uploads, b"ab")
    now = time.time()
    monkeypatch.setattr("llmfw.api.files.uploads.time.time", lambda: now + 3601)
    with pytest.raises(RequestError, match="is expired") as raised:
        await uploads.complete(upload_id, CompleteRequest(part_ids=part_ids))
    assert raised.value.code == "upload_expired"
    assert await FileService(store, MemoryBatches(None), Ownership()).remove_expired(now + 7202) == 2
    with pytest.raises(NotFoundError, match="uploads expire after an hour"):
        await uploads.cancel(upload_id)


async def test_a_file_is_no_upload(uploads, store):
    upload_id, part_ids = await begin(uploads, b"ab")
    upload = await uploads.complete(upload_id, CompleteRequest(part_ids=part_ids))
    with pytest.raises(NotFoundError):
        await uploads.cancel(upload.file.id)


def test_files_and_uploads_survive_a_restart(tmp_path):
    def stores() -> dict[str, object]:
        return {"files": SqliteFiles(tmp_path), "batches": SqliteBatches(tmp_path)}

    (tmp_path / "model").mkdir()
    tokenizer = byte_tokenizer(tmp_path / "model")
    with serving(EchoEngine(), tokenizer, stores=stores()) as server, server.openai() as sdk:
        file = sdk.files.create(file=("日本/\n", b"kept"), purpose="batch")
        upload = sdk.uploads.create(bytes=4, filename="a", mime_type="x", purpose="batch")
        part_ids = [sdk.uploads.parts.create(upload.id, data=data).id for data in (b"ab", b"cd")]
    with serving(EchoEngine(), tokenizer, stores=stores()) as server, server.openai() as sdk:
        assert sdk.files.retrieve(file.id) == file
        assert sdk.files.content(file.id).read() == b"kept"
        done = sdk.uploads.complete(upload.id, part_ids=part_ids)
        assert sdk.files.content(done.file.id).read() == b"abcd"
