"""Whose things are, when the keys of a server change, when it restarts, and when an administrator touches them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar import get
from litestar.datastructures import State

from llmfw.core.interfaces.tokenizer import Tokenizer
from llmfw.plugins.store_sqlite.batches import SqliteBatches
from llmfw.plugins.store_sqlite.files import SqliteFiles
from llmfw.plugins.store_sqlite.responses import SqliteResponses

from ..doubles.echo_engine import EchoEngine
from ..doubles.serving import Served, byte_tokenizer, serving
from .batches.rig import chat_line, jsonl

Serve = Callable[..., AbstractContextManager[Served]]

ALICE, BOB, ROOT = (f"{name}-0123456789abcdef" for name in ("alice", "bob", "root"))
TWO = (("alice", ALICE), ("bob", BOB))


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    return byte_tokenizer(tmp_path)


@pytest.fixture
def serve(tokenizer: Tokenizer, tmp_path: Path) -> Serve:
    """A function that serves one storage, each time with other keys."""

    def serve(delay: float = 0.0, **config: Any) -> AbstractContextManager[Served]:
        folder = tmp_path / "storage"
        stores = {
            "files": SqliteFiles(folder),
            "batches": SqliteBatches(folder),
            "responses": SqliteResponses(folder, 2**20),
        }
        return serving(EchoEngine(delay=delay), tokenizer, stores=stores, **config)

    return serve


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} if key else {}


def make_all(served: Served, key: str = "") -> list[str]:
    """Make a file, a batch and a response; return their paths."""
    headers = bearer(key)
    file = {"file": ("in.jsonl", jsonl([chat_line("a")]))}
    made = httpx.post(f"{served.url}/v1/files", data={"purpose": "batch"}, files=file, headers=headers).json()
    job = {"input_file_id": made["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    batch = served.post("/v1/batches", job, headers=headers).json()
    response = served.post("/v1/responses", {"input": "Hi"}, headers=headers).json()
    return [f"/v1/files/{made['id']}", f"/v1/batches/{batch['id']}", f"/v1/responses/{response['id']}"]


def statuses(served: Served, paths: list[str], key: str) -> set[int]:
    return {httpx.get(served.url + path, headers=bearer(key)).status_code for path in paths}


@pytest.mark.long
@pytest.mark.parametrize("first", [(), (("", "only-0123456789abcdef"),)])
def test_objects_made_before_tenants_stay_accessible(
    serve: Serve, caplog: pytest.LogCaptureFixture, first: tuple[tuple[str, str], ...]
) -> None:
    with serve(api_key=first) as served:
        paths = make_all(served, first[0][1] if first else "")
    with serve(api_key=(("", "another-0123456789"),)) as served:
        assert statuses(served, paths, "another-0123456789") == {200}  # the only key was replaced
    with serve(api_key=(("alice", ALICE),)) as served:
        assert statuses(served, paths, ALICE) == {200}
    assert "--adopt-unowned" not in caplog.text
    with serve(api_key=TWO, admin_api_key=ROOT) as served:
        assert [statuses(served, paths, key) for key in (ALICE, BOB, ROOT)] == [{404}, {404}, {200}]
    assert "--adopt-unowned NAME" in caplog.text
    with serve(api_key=TWO, adopt_unowned="bob") as served:
        assert [statuses(served, paths, key) for key in (ALICE, BOB)] == [{404}, {200}]


def test_tenants_keep_objects_under_any_keys(serve: Serve) -> None:
    with serve(api_key=TWO) as served:
        paths = make_all(served, BOB)
    with serve(api_key=(("alice", ALICE),)) as served:  # the only tenant, and still not bob
        assert statuses(served, paths, ALICE) == {404}
    with serve(api_key=(("alice", ALICE), ("bob", "new-0123456789abcdef"))) as served:
        assert [statuses(served, paths, key) for key in (ALICE, "new-0123456789abcdef")] == [{404}, {200}]
    with serve() as served:
        assert statuses(served, paths, "") == {200}


def test_keys_of_one_name_share_objects(serve: Serve) -> None:
    with serve(api_key=(*TWO, ("alice", "second-0123456789"))) as served:
        assert statuses(served, make_all(served, ALICE), "second-0123456789") == {200}


def test_unnamed_keys_do_not_share_objects(serve: Serve) -> None:
    with serve(api_key=(("", ALICE), ("", BOB))) as served:
        paths = make_all(served, ALICE)
        assert [statuses(served, paths, key) for key in (ALICE, BOB)] == [{200}, {404}]


@pytest.mark.parametrize("ends_by", ["cancel", "restart"])
def test_background_responses_belong_to_their_tenant(serve: Serve, ends_by: str) -> None:
    body = {"input": "Hi " * 50, "background": True}
    with serve(api_key=TWO, admin_api_key=ROOT, delay=0.05) as served:
        path = f"/v1/responses/{served.post('/v1/responses', body, headers=bearer(ALICE)).json()['id']}"
        if ends_by == "cancel":
            httpx.post(f"{served.url}{path}/cancel", headers=bearer(ROOT)).raise_for_status()
    with serve(api_key=TWO) as served:
        assert [statuses(served, [path], key) for key in (ALICE, BOB)] == [{200}, {404}]
        status = httpx.get(served.url + path, headers=bearer(ALICE)).json()["status"]
        assert status == ("cancelled" if ends_by == "cancel" else "failed")


def test_admin_uploads_belong_to_the_upload_s_tenant(serve: Serve) -> None:
    with serve(api_key=TWO, admin_api_key=ROOT) as served:
        body = {"filename": "a", "purpose": "batch", "bytes": 4, "mime_type": "text/plain"}
        path = f"/v1/uploads/{served.post('/v1/uploads', body, headers=bearer(ALICE)).json()['id']}"
        part = {"data": ("part", b"data")}
        part_id = httpx.post(f"{served.url}{path}/parts", files=part, headers=bearer(ROOT)).json()["id"]
        upload = served.post(f"{path}/complete", {"part_ids": [part_id]}, headers=bearer(ROOT)).json()
        file = [f"/v1/files/{upload['file']['id']}"]
        assert [statuses(served, file, key) for key in (ALICE, BOB)] == [{200}, {404}]


@get("/plugin/settings", sync_to_thread=False)
def show_settings(state: State) -> str:
    return repr(state.config)


def test_plugin_routes_receive_no_keys(serve: Serve) -> None:
    routes = [("settings", f"{__name__}:show_settings")]
    with serve(api_key=TWO, admin_api_key=ROOT, plugin_routes=routes) as served:
        shown = httpx.get(f"{served.url}/plugin/settings", headers=bearer(BOB)).text
    assert "sha256:" in shown
    assert ALICE not in shown
    assert ROOT not in shown


def test_a_used_file_hides_foreign_batches(serve: Serve) -> None:
    with serve(api_key=TWO, admin_api_key=ROOT, delay=0.05) as served:
        file = {"file": ("in.jsonl", jsonl([chat_line("a", "long " * 40)]))}
        sent = httpx.post(
            f"{served.url}/v1/files", data={"purpose": "batch"}, files=file, headers=bearer(ALICE)
        )
        file_id = sent.json()["id"]
        job = {"input_file_id": file_id, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        batch_id = served.post("/v1/batches", job, headers=bearer(ROOT)).json()["id"]
        told = [
            httpx.delete(f"{served.url}/v1/files/{file_id}", headers=bearer(key))
            for key in (ALICE, ROOT, BOB)
        ]
    assert [reply.status_code for reply in told] == [409, 409, 404]
    assert [batch_id in reply.text for reply in told] == [False, True, False]
