"""Kills and stops of the engine, of the API process and of both, under load: the server answers again, and loses nothing.

`make chaos` runs it in full length with the real engine: 30 kills and 10 stops. LLMFW_CHAOS=echo does so with the echo
engine, which starts at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from ..length import of_length
from .ledger import Ledger
from .server import ServerProcess, echo_server
from .test_killed import ENDPOINT, finish

pytestmark = pytest.mark.slow

LENGTH = os.environ.get("LLMFW_CHAOS")  # "real" or "echo"; None: short
IS_FULL = LENGTH is not None
ANSWERS_AGAIN_S = 20.0
NUM_LINES = 4000 if IS_FULL else 400
EVENTS = (
    ["engine", "api", "both"] * 10 + ["stop"] * 10
    if IS_FULL
    else ["engine", "api", "stop", "both", "engine"][: of_length(3, 5)]
)


class Load(threading.Thread):
    """Chats until it is ended, every other time as a stream.

    Attributes:
        failures: of requests that had not begun to answer while the API process lived: there must be none.
    """

    def __init__(self, server: ServerProcess) -> None:
        super().__init__(daemon=True)
        self.failures: list[str] = []
        self.num_answered = 0
        self.ending = threading.Event()
        self._url = server.url + ENDPOINT

    def run(self) -> None:
        with httpx.Client(trust_env=False, timeout=120) as http:
            while not self.ending.wait(0.01):
                with contextlib.suppress(httpx.TransportError):  # the API process was killed
                    self._chat(http)
                    self._read_stream(http)

    def _chat(self, http: httpx.Client) -> None:
        reply = http.post(self._url, json=body_of("Hello", 24))
        if reply.is_success:
            self.num_answered += 1
        else:
            self.failures.append(f"{reply.status_code} {reply.text}")

    def _read_stream(self, http: httpx.Client) -> None:
        with http.stream("POST", self._url, json=body_of("Hello", 24) | {"stream": True}) as reply:
            if not reply.is_success:
                self.failures.append(f"{reply.status_code} {reply.read()!r}")
            for _ in reply.iter_lines():
                pass


def body_of(text: str, max_tokens: int) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": max_tokens}


def submit(server: ServerProcess, ledger: Ledger) -> str:
    """Submit a batch of which no line has a reason to fail."""
    lines = [
        {"custom_id": str(i), "method": "POST", "url": ENDPOINT, "body": body_of(f"Say {i}", 8)}
        for i in range(NUM_LINES)
    ]
    content = "".join(json.dumps(line) + "\n" for line in lines).encode()
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as http:
        files = {"purpose": (None, "batch"), "file": ("in.jsonl", content)}
        file_id: str = http.post("/v1/files", files=files).raise_for_status().json()["id"]
        ledger.files[file_id] = content
        asked = {"input_file_id": file_id, "endpoint": ENDPOINT, "completion_window": "24h"}
        batch_id: str = http.post("/v1/batches", json=asked).raise_for_status().json()["id"]
        ledger.batches.add(batch_id)
    return batch_id


def cause(event: str, server: ServerProcess) -> None:
    """Let something happen to the server. Of the API process' end an outer supervisor takes care: here, `start`."""
    if event == "stop":
        server.signal_engine(signal.SIGSTOP)
    elif event == "engine":
        server.signal_engine(signal.SIGKILL)
    else:
        server.kill() if event == "both" else server.kill_api()
        server.start()


def seconds_to_answer(server: ServerProcess, event: Callable[[], None]) -> float:
    """Let something happen; return after how many seconds the server answers a new request."""
    begun = time.monotonic()
    event()
    while True:
        with contextlib.suppress(httpx.TransportError):
            if httpx.post(server.url + ENDPOINT, json=body_of("Hi", 1), timeout=60).is_success:
                return time.monotonic() - begun
        time.sleep(0.05)


@pytest.fixture
def server(tmp_path: Path) -> ServerProcess:
    if LENGTH == "real":
        return ServerProcess(tmp_path)
    return echo_server(tmp_path, "--watchdog-timeout", "300" if IS_FULL else "2")


@pytest.mark.long  # tests/core/client/test_supervisor.py and test_killed.py hold it for each process alone
def test_the_server_recovers_from_kills_and_stops(server: ServerProcess) -> None:
    draw, ledger = random.Random(3), Ledger()
    draw.shuffle(EVENTS)
    times: dict[str, list[float]] = {event: [] for event in EVENTS}
    with server:
        load = [Load(server) for _ in range(4)]
        for thread in load:
            thread.start()
        submit(server, ledger)
        for event in EVENTS:
            time.sleep(draw.random() * of_length(1, 3))
            times[event].append(seconds_to_answer(server, lambda event=event: cause(event, server)))  # type: ignore[misc]
            if event == "engine" and draw.random() < 0.3:  # and once more, while it starts
                time.sleep(draw.random() * 2)
                times[event].append(seconds_to_answer(server, lambda: cause("engine", server)))
        for thread in load:
            thread.ending.set()
            thread.join(60)
        finish(server)
        with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as http:
            assert ledger.complaints(http) == []
            [batch] = [http.get(f"/v1/batches/{id}").json() for id in ledger.batches]
        server.stop()
    report = {
        event: f"{statistics.median(took):.1f}, at most {max(took):.1f}" for event, took in times.items()
    }
    print(f"seconds to answer again, median: {report}; chats: {sum(each.num_answered for each in load)}")
    assert batch["request_counts"] == {"total": NUM_LINES, "completed": NUM_LINES, "failed": 0}
    assert [failure for thread in load for failure in thread.failures] == []
    assert max(map(max, times.values())) < ANSWERS_AGAIN_S


def test_too_many_restarts_end_with_exit_code_70(tmp_path: Path) -> None:
    with echo_server(tmp_path, "--max-restarts-per-hour", "0") as server:
        server.signal_engine(signal.SIGKILL)
        assert server.wait_ended() == 70
    last = server.log.read_text().splitlines()[-1]
    assert "Error: the engine process was killed by SIGKILL" in last
    assert "--max-restarts-per-hour is 0" in last


@pytest.mark.long  # tests/core/client/test_supervisor.py and tests/api/http/test_errors.py hold its halves
def test_without_restarts_health_reports_the_dead_engine(tmp_path: Path) -> None:
    with echo_server(tmp_path, "--restart", "never") as server:
        server.signal_engine(signal.SIGKILL)
        deadline = time.monotonic() + 10
        while (reply := httpx.get(f"{server.url}/health")).is_success:
            assert time.monotonic() < deadline
        assert reply.json()["error"]["code"] == "engine_dead"
        assert server.stop() == 0
