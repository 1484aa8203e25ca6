"""A full disk and a locked database: errors are clear, and it goes on when there is room again."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from .ledger import Ledger, leftovers
from .server import ServerProcess, echo_server
from .test_killed import ENDPOINT, finish

pytestmark = pytest.mark.slow

DISK_MB = 8
NUM_LINES = 200


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Return a folder on a disk of a few megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs is not allowed here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


def submit(server: ServerProcess, ledger: Ledger, num: int = NUM_LINES) -> str:
    """Submit a batch, and return its id."""
    body = {"model": "echo", "messages": [{"role": "user", "content": "Hello " * 10}], "max_tokens": 40}
    line = {"method": "POST", "url": ENDPOINT, "body": body}
    content = "".join(json.dumps({"custom_id": str(i), **line}) + "\n" for i in range(num)).encode()
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="None", max_retries=0) as sdk:
        file = sdk.files.create(file=content, purpose="batch")
        ledger.files[file.id] = content
        batch = sdk.batches.create(input_file_id=file.id, endpoint=ENDPOINT, completion_window="24h")
        ledger.batches.add(batch.id)
    return batch.id


def fill(path: Path) -> None:
    """Write a file until there is no room for more."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


def complaints(server: ServerProcess, ledger: Ledger) -> list[str]:
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as http:
        return ledger.complaints(http)


def has_begun(server: ServerProcess, batch_id: str) -> bool:
    counts = httpx.get(f"{server.url}/v1/batches/{batch_id}").json()["request_counts"]
    return bool(counts["completed"])


@pytest.mark.long
def test_a_full_disk_pauses_batches_until_freed(disk: Path, tmp_path: Path, ledger: Ledger) -> None:
    """Uploads are refused meanwhile."""
    with echo_server(tmp_path, "--storage", str(disk), "--log-level", "info") as server:
        batch = submit(server, ledger)
        while not has_begun(server, batch):
            time.sleep(0.02)
        ballast = disk / "ballast"
        fill(ballast)
        reply = httpx.post(
            f"{server.url}/v1/files", data={"purpose": "batch"}, files={"file": b"x" * 2**20}, timeout=60
        )
        assert reply.status_code == 507
        assert "room" in reply.json()["error"]["message"]
        time.sleep(1)
        assert httpx.get(f"{server.url}/v1/batches/{batch}").json()["status"] == "in_progress"
        ballast.unlink()
        finish(server)
        assert complaints(server, ledger) == []
        server.stop()
    assert leftovers(disk, server.tmp) == []
    assert "room" in server.log.read_text()


@pytest.mark.long
def test_a_locked_database_pauses_batches(tmp_path: Path, ledger: Ledger) -> None:
    with echo_server(tmp_path) as server:
        batch = submit(server, ledger)
        while not has_begun(server, batch):
            time.sleep(0.02)
        with sqlite3.connect(server.storage / "batches.db", isolation_level=None) as other:
            other.execute("begin immediate")
            time.sleep(1)
            body = {"input_file_id": next(iter(ledger.files)), "endpoint": ENDPOINT}
            refused = httpx.post(
                f"{server.url}/v1/batches", json={**body, "completion_window": "24h"}, timeout=60
            )
            other.execute("rollback")
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "storage_unavailable"
        finish(server)
        assert complaints(server, ledger) == []
