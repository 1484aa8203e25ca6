"""/v1/files as OpenAI's SDK uses it, and what wrong requests are told."""

from __future__ import annotations

import logging
import time

import httpx
import openai
import pytest
from openai.types import FileDeleted, FileObject

from ...doubles.serving import Served
from .forms import BOUNDARY, PURPOSE, form, part, upload_form

HEADERS = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
DAY = 24 * 3600


def post_form(server: Served, body: bytes, **headers: str) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/files", content=body, headers=HEADERS | headers)


def error_of(reply: httpx.Response) -> dict[str, str | None]:
    error = reply.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    return dict(error)


def test_a_file_is_returned_unchanged(sdk):
    content = bytes(range(256)) * 5000
    file = sdk.files.create(file=('päth/../"a".jsonl', content), purpose="user_data")
    assert FileObject.model_validate(file.model_dump(exclude_unset=True), strict=True)
    assert file.to_dict() == {
        "id": file.id,
        "object": "file",
        "bytes": len(content),
        "created_at": file.created_at,
        "filename": 'päth/../"a".jsonl',
        "purpose": "user_data",
        "status": "processed",
    }
    assert abs(file.created_at - time.time()) < 5
    assert sdk.files.retrieve(file.id) == file
    assert sdk.files.wait_for_processing(file.id, max_wait_seconds=1) == file
    assert sdk.files.content(file.id).read() == content


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "C:\\x", ".", "..", "a\nb", "x" * 2000, "日本 🎉"]
)
def test_a_name_is_never_a_path(sdk, name):
    file = sdk.files.create(file=(name, b"mine"), purpose="batch")
    assert file.filename == name
    reply = sdk.files.content(file.id)
    assert reply.read() == b"mine"
    assert reply.response.headers["content-disposition"].startswith('attachment; filename="')


def test_unnamed_bytes_get_the_sdk_s_name(sdk):
    assert sdk.files.create(file=b"x", purpose="batch").filename == "upload"


def test_batch_files_expire_by_default(sdk):
    """After 30 days; other files expire only if the client says so."""
    plain = sdk.files.create(file=b"x", purpose="batch")
    asked = sdk.files.create(
        file=b"x", purpose="user_data", expires_after={"anchor": "created_at", "seconds": 3600}
    )
    assert plain.expires_at - plain.created_at == 30 * DAY
    assert asked.expires_at - asked.created_at == 3600


def test_deleting_removes_a_file(sdk):
    file = sdk.files.create(file=b"x", purpose="batch")
    assert sdk.files.delete(file.id) == FileDeleted(id=file.id, object="file", deleted=True)
    for call in (sdk.files.retrieve, sdk.files.content, sdk.files.delete):
        with pytest.raises(openai.NotFoundError) as raised:
            call(file.id)
        assert (raised.value.param, raised.value.code) == ("file_id", None)
        assert file.id in raised.value.message


def test_pagination_survives_deletions(server):
    with server.openai() as sdk:
        made = [sdk.files.create(file=b"x", purpose="evals").id for _ in range(5)]
        assert [file.id for file in sdk.files.list(purpose="evals", limit=2)] == made[::-1]
        assert [file.id for file in sdk.files.list(purpose="evals", limit=2, order="asc")] == made
        for file in sdk.files.list(purpose="evals", limit=2):
            sdk.files.delete(file.id)
        assert sdk.files.list(purpose="evals").data == []


def test_a_page_names_its_ends_and_has_more(server, sdk):
    made = [sdk.files.create(file=b"x", purpose="vision").id for _ in range(3)]
    url = f"{server.url}/v1/files?purpose=vision"
    first = httpx.get(f"{url}&limit=2").json()
    assert (first["first_id"], first["last_id"], first["has_more"]) == (made[2], made[1], True)
    last = httpx.get(f"{url}&limit=2&after={made[1]}").json()
    assert (last["first_id"], last["last_id"], last["has_more"]) == (made[0], made[0], False)
    empty = httpx.get(f"{url}&after={made[0]}").json()
    assert empty == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=10001", "limit"),
        ("limit=ten", "limit"),
        ("order=newest", "order"),
        ("after=resp_1", "after"),
        ("purpose=fun", "purpose"),
    ],
)
def test_a_wrong_query_names_its_parameter(server, query, param):
    reply = httpx.get(f"{server.url}/v1/files?{query}")
    assert (reply.status_code, error_of(reply)["param"]) == (400, param)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (form(part("file", b"x", "a")), "purpose"),
        (upload_form(b"x", PURPOSE, ("expires_after[seconds]", b"3600")), "expires_after[anchor]"),
        (upload_form(b"x", PURPOSE, ("expires_after[anchor]", b"created_at")), "expires_after[seconds]"),
        (upload_form(b"x", PURPOSE, ("color", b"red")), "color"),
        (upload_form(b""), "file"),
        (b"nonsense", None),
    ],
)
def test_a_wrong_form_is_400_and_stores_nothing(server, sdk, body, param):
    before = [file.id for file in sdk.files.list()]
    reply = post_form(server, body)
    assert (reply.status_code, error_of(reply)["param"]) == (400, param)
    assert [file.id for file in sdk.files.list()] == before


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 415),
        ("multipart/mixed; boundary=b0undary", 415),
        ("", 415),
        ("multipart/form-data", 400),
        ("multipart/form-data; boundary=", 400),
        ("multipart/form-data; boundary=other", 400),
        ('Multipart/Form-Data; charset=utf-8; boundary="b0undary"', 200),
    ],
)
def test_only_a_form_with_its_boundary_is_read(server, content_type, status):
    reply = post_form(server, upload_form(), **{"content-type": content_type})
    assert reply.status_code == status
    assert status == 200 or error_of(reply)["message"]


def test_an_upload_s_part_is_no_file(sdk):
    upload = sdk.uploads.create(bytes=1, filename="a", mime_type="text/plain", purpose="batch")
    part_id = sdk.uploads.parts.create(upload.id, data=b"x").id
    for hidden in (upload.id, part_id, "file-x", "../../etc/passwd"):
        with pytest.raises(openai.NotFoundError):
            sdk.files.retrieve(hidden)
    assert not {upload.id, part_id} & {file.id for file in sdk.files.list()}


def test_the_log_lists_files_without_names(sdk, caplog):
    caplog.set_level(logging.INFO, "llmfw")
    file = sdk.files.create(file=("evil\nname", b"xy"), purpose="batch")
    sdk.files.delete(file.id)
    lines = [record.getMessage() for record in caplog.records if record.name == "llmfw.api.files.service"]
    assert lines == [
        f"Stored {file.id}: 2 bytes, purpose batch",
        f"Removed {file.id}: 2 bytes, purpose batch",
    ]
