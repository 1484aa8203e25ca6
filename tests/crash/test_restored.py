"""A server that is killed, and started again with databases of another day, keeps every stored file."""

from __future__ import annotations

import shutil
from pathlib import Path

import httpx
import pytest

from .server import ServerProcess, echo_server

pytestmark = pytest.mark.slow


def upload(server: ServerProcess, content: bytes) -> str:
    files = {"purpose": (None, "user_data"), "file": ("a", content)}
    file_id: str = httpx.post(f"{server.url}/v1/files", files=files).raise_for_status().json()["id"]
    return file_id


def status(server: ServerProcess, file_id: str) -> int:
    return httpx.get(f"{server.url}/v1/files/{file_id}/content").status_code


def restore(storage: Path, copy: Path) -> None:
    """Put files.db, with its latest changes, in place of those that are there."""
    for path in storage.glob("files.db*"):
        path.unlink()
    for path in copy.glob("files.db*"):
        shutil.copy(path, storage)


@pytest.mark.long  # tests/plugins/test_restored_files.py holds the stores to it without a server
def test_restoring_an_older_copy_loses_no_file(tmp_path: Path) -> None:
    with echo_server(tmp_path) as server:
        first = upload(server, b"first")
        server.kill()
        shutil.copytree(server.storage, tmp_path / "older")
        server.start()
        second = upload(server, b"second")
        server.kill()
        shutil.copytree(server.storage, tmp_path / "newest")
        restore(server.storage, tmp_path / "older")
        server.start()
        assert (status(server, first), status(server, second)) == (200, 404)
        assert "files holds 1 files that files.db does not know" in server.log.read_text()
        server.kill()
        restore(server.storage, tmp_path / "newest")
        server.start()
        assert (status(server, first), status(server, second)) == (200, 200)
        server.stop()
        (server.storage / "batches.db").write_bytes(b"garbage" * 1000)
        server.launch()
        assert server.wait_ended() == 1
        assert "batches.db' is damaged (file is not a database): stop any server" in server.log.read_text()
