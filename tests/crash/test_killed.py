"""Nothing that a server has accepted is lost or done twice, at whatever moment it is killed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ..length import of_length
from .ledger import ENDED, Ledger, Watch, leftovers, list_all
from .server import ServerProcess, echo_server

pytestmark = pytest.mark.slow

ENDPOINT = "/v1/chat/completions"
KILLS = os.environ.get("LLMFW_KILLS")  # set by `make chaos`
NUM_KILLS = int(KILLS or of_length(7, 21))  # a multiple of the moments
MANY = 5_000  # lines: takes a moment to be validated
LONGEST_DELAY_S = 0.1  # from a moment to the kill; most are much shorter
MOMENTS = ("upload", "validating", "in_progress", "finalizing", "cancelling", "any", "starting")
PATIENCE_S = 4.0  # for a moment to come
END_S = 300.0  # for what is left to be done in the end


class Client(threading.Thread):
    """Uploads, submits and cancels until the server does not answer any more.

    Args:
        moment: at which the server will be killed, so that it comes.

    Attributes:
        uploading: an upload is on its way.
    """

    def __init__(self, url: str, ledger: Ledger, draw: random.Random, moment: str) -> None:
        super().__init__()
        self.uploading = threading.Event()
        self._http = httpx.Client(base_url=url, trust_env=False, timeout=30)
        self._ledger = ledger
        self._draw = draw
        self._moment = moment

    def run(self) -> None:
        with self._http, contextlib.suppress(httpx.TransportError):
            self._cancel_what_is_too_much()
            while True:
                self._upload(self._draw.randbytes(self._draw.randrange(2 * 2**20)), "user_data")
                num = MANY if self._moment == "validating" else self._draw.choice([1, 30, 100])
                batch = self._submit(self._upload(input_lines(num, self._draw), "batch"))
                if self._moment == "cancelling" or self._draw.random() < 0.1:
                    time.sleep(self._draw.random() * 0.3)
                    self._http.post(f"/v1/batches/{batch}/cancel")  # may have ended: 409

    def _cancel_what_is_too_much(self) -> None:
        """To run all lines of all batches would take an hour."""
        for batch in self._http.get("/v1/batches", params={"limit": 100}).json()["data"]:
            if batch["request_counts"]["total"] >= MANY or self._draw.random() < 0.3:
                self._http.post(f"/v1/batches/{batch['id']}/cancel")

    def _upload(self, content: bytes, purpose: str) -> str:
        files = {"purpose": (None, purpose), "file": ("../in.jsonl", content)}
        request = self._http.build_request("POST", "/v1/files", files=files)
        slow = self._http.build_request(
            "POST", "/v1/files", content=self._slowly(request.read()), headers=request.headers
        )
        file_id: str = self._http.send(slow).raise_for_status().json()["id"]
        self._ledger.files[file_id] = content
        return file_id

    def _slowly(self, content: bytes) -> Iterator[bytes]:
        self.uploading.set()
        for start in range(0, len(content), 2**18):
            yield content[start : start + 2**18]
            time.sleep(0.005)
        self.uploading.clear()

    def _submit(self, file_id: str) -> str:
        body = {"input_file_id": file_id, "endpoint": ENDPOINT, "completion_window": "24h"}
        batch_id: str = self._http.post("/v1/batches", json=body).raise_for_status().json()["id"]
        self._ledger.batches.add(batch_id)
        return batch_id


def input_lines(num: int, draw: random.Random) -> bytes:
    """Return a batch's input: some lines fail when they run, and one file in eight is not valid."""
    lines = [line(f"{i}-{draw.random()}", -1 if draw.random() < 0.1 else 0) for i in range(num)]
    if draw.random() < 1 / 8:
        lines.insert(draw.randrange(num + 1), "{")
    return "".join(f"{text}\n" for text in lines).encode()


def line(custom_id: str, temperature: float) -> str:
    """Return a line of a batch's input; a temperature below 0 is answered with 400."""
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    body["temperature"] = temperature
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": ENDPOINT, "body": body})


def wait_for(moment: str, server: ServerProcess, client: Client, draw: random.Random) -> None:
    """Return when a moment has come, or seems not to come."""
    deadline = time.monotonic() + PATIENCE_S
    if moment == "upload":
        client.uploading.wait(PATIENCE_S)
        return
    if moment in ("any", "starting"):
        time.sleep(draw.random() * 2)
        return
    with Watch(server.storage) as watch:
        while time.monotonic() < deadline and not watch.states()[moment]:
            time.sleep(0.0005)


def finish(server: ServerProcess) -> None:
    """Wait until the server has nothing left to do."""
    deadline = time.monotonic() + END_S
    with httpx.Client(base_url=server.url, trust_env=False, timeout=30) as http:
        while running := [b for b in list_all(http, "/v1/batches", 100) if b["status"] not in ENDED]:
            assert time.monotonic() < deadline, f"{len(running)} batches do not end, the first: {running[-1]}"
            time.sleep(0.5)


@pytest.fixture
def server(tmp_path: Path) -> ServerProcess:
    """Return a server with the real engine for `make chaos`, and otherwise with one that starts at once."""
    options = ("--log-level", "info")
    return ServerProcess(tmp_path, *options) if KILLS else echo_server(tmp_path, *options)


@pytest.mark.long
def test_kills_lose_and_duplicate_nothing(server: ServerProcess) -> None:
    draw, ledger = random.Random(7), Ledger()
    left: Counter[str] = Counter()
    with server:
        for number in range(NUM_KILLS):
            moment = MOMENTS[number % len(MOMENTS)]
            client = Client(server.url, ledger, random.Random(number), moment)
            client.start()
            wait_for(moment, server, client, draw)
            time.sleep(draw.random() ** 3 * LONGEST_DELAY_S)
            server.kill()
            client.join()
            with Watch(server.storage) as watch:
                left += Counter(set(watch.states()))
            if moment == "starting":
                server.launch()
                time.sleep(draw.random() * 3)
                server.kill()
            server.start()
        finish(server)
        with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as http:
            assert ledger.complaints(http) == []
        server.stop()
        assert leftovers(server.storage, server.tmp) == []
    assert len(ledger.batches) > NUM_KILLS // 2
    moments = {"validating", "in_progress", "finalizing", "cancelling"}
    # Each kill is meant for one moment, and may miss it: a few kills are sure of some moment alone.
    assert moments <= left.keys() if NUM_KILLS > 20 else moments & left.keys(), "a moment was never met"


@pytest.mark.long  # tests/plugins/test_sqlite_stores.py holds the stores to it
def test_two_servers_cannot_share_a_storage_folder(tmp_path: Path) -> None:
    with echo_server(tmp_path) as server:
        other = echo_server(tmp_path / "other", "--storage", str(server.storage))
        with pytest.raises(RuntimeError, match="is in use by another server: name another folder"):
            other.start()
