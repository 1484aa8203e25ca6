"""Replies on files and uploads validate against OpenAI's published OpenAPI document, where there is a copy."""

from __future__ import annotations

import httpx
import pytest

from ..test_openai_document import PATH, complaints
from .forms import BOUNDARY, form, part, upload_form

pytestmark = pytest.mark.skipif(not PATH, reason="LLMFW_OPENAI_DOCUMENT names no copy of OpenAI's document")

HEADERS = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}


def test_file_replies_match_openai_s_document(server):
    file = httpx.post(f"{server.url}/v1/files", content=upload_form(), headers=HEADERS).json()
    assert complaints("OpenAIFile", file) == []
    assert complaints("OpenAIFile", httpx.get(f"{server.url}/v1/files/{file['id']}").json()) == []
    assert complaints("ListFilesResponse", httpx.get(f"{server.url}/v1/files").json()) == []
    gone = httpx.delete(f"{server.url}/v1/files/{file['id']}").json()
    assert complaints("DeleteFileResponse", gone) == []


def test_upload_replies_match_openai_s_document(server):
    body = {"bytes": 1, "filename": "a", "mime_type": "x", "purpose": "batch"}
    begun, cancelled = (server.post("/v1/uploads", body).json() for _ in range(2))
    url = f"{server.url}/v1/uploads/{begun['id']}"
    added = httpx.post(f"{url}/parts", content=form(part("data", b"x")), headers=HEADERS).json()
    done = httpx.post(f"{url}/complete", json={"part_ids": [added["id"]]}).json()
    given_up = httpx.post(f"{server.url}/v1/uploads/{cancelled['id']}/cancel").json()
    assert complaints("UploadPart", added) == []
    assert [complaints("Upload", upload) for upload in (begun, done, given_up)] == [[], [], []]


def test_errors_match_openai_s_document(server):
    assert complaints("ErrorResponse", httpx.get(f"{server.url}/v1/files/file-x").json()) == []
