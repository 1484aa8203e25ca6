"""One of several engines is killed under load: nothing is lost, and the others' streams do not notice."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ..length import of_length
from .ledger import ENDED, batch_complaints
from .server import SERVE, ServerProcess, echo_server, wait_until

pytestmark = pytest.mark.slow

NUM_KILLS = of_length(3, 20)
NUM_CLIENTS = 6
PATIENCE_S = 60.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with echo_server(tmp_path, "--replicas", "2", "--max-restarts-per-hour", "1000") as server:
        yield server


def ready(server: ServerProcess) -> str:
    reply = httpx.get(f"{server.url}/health/ready", trust_env=False)
    return str(reply.json().get("engines", reply.status_code))


def body(text: str, *, stream: bool) -> dict[str, object]:
    messages = [{"role": "user", "content": text}]
    return {"model": "echo", "messages": messages, "max_tokens": 100, "stream": stream}


class Client(threading.Thread):
    """Asks for one text after the other, every second one as a stream, until told to stop.

    Attributes:
        complaints: what was wrong with an answer.
        num_whole: number of whole answers.
        stop: event that ends it.
    """

    def __init__(self, url: str, number: int) -> None:
        super().__init__()
        self.complaints: list[str] = []
        self.num_whole = 0
        self.stop = threading.Event()
        self._http = httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE_S)
        self._number = number

    def run(self) -> None:
        turn = 0
        with self._http:
            while not self.stop.is_set():
                text = f"client {self._number} asks for the {turn}th time"
                self._ask_for_stream(text) if turn % 2 else self._ask(text)
                turn += 1

    def _ask(self, text: str) -> None:
        reply = self._http.post("/v1/chat/completions", json=body(text, stream=False))
        if not reply.is_success or reply.json()["choices"][0]["message"]["content"] != text:
            self.complaints.append(f"{text!r} got {reply.status_code} {reply.text}")
        else:
            self.num_whole += 1

    def _ask_for_stream(self, text: str) -> None:
        found, error = "", None
        with self._http.stream("POST", "/v1/chat/completions", json=body(text, stream=True)) as reply:
            if not reply.is_success:
                self.complaints.append(f"stream {text!r} got {reply.status_code} {reply.read()!r}")
                return
            for line in reply.iter_lines():
                if line.startswith("data: {"):
                    event = json.loads(line.removeprefix("data: "))
                    error = event.get("error") or error
                    found += "".join(
                        choice["delta"].get("content") or "" for choice in event.get("choices", ())
                    )
        if error is None and found == text:
            self.num_whole += 1
        else:
            self.complaints.append(f"stream {text!r} got {found!r} and {error}")


def runs_again(server: ServerProcess, killed: int) -> bool:
    """Return whether another engine has taken the place of a killed one."""
    pids = server.engine_pids
    return len(pids) == 2 and killed not in pids and ready(server) == "2 of 2"


@pytest.mark.long
def test_killed_engines_lose_nothing(server: ServerProcess) -> None:
    """Streams that have begun are continued by the other engine, and all else is answered in full, too."""
    rng = random.Random(0)
    wait_until(lambda: ready(server) == "2 of 2", PATIENCE_S, "the start")
    lines = [
        {
            "custom_id": f"{i}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": body(f"line {i}", stream=False),
        }
        for i in range(200)
    ]
    content = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    with httpx.Client(base_url=server.url, trust_env=False, timeout=PATIENCE_S) as http:
        upload = http.post(
            "/v1/files", files={"purpose": (None, "batch"), "file": ("in.jsonl", content)}
        ).json()
        asked = {
            "input_file_id": upload["id"],
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
        }
        batch = http.post("/v1/batches", json=asked).json()
        clients = [Client(server.url, number) for number in range(NUM_CLIENTS)]
        for client in clients:
            client.start()
        with contextlib.ExitStack() as at_end:
            for client in clients:
                at_end.callback(client.join, PATIENCE_S)
                at_end.callback(client.stop.set)
            for _ in range(NUM_KILLS):
                time.sleep(0.5 + rng.random())
                os.kill(killed := rng.choice(server.engine_pids), signal.SIGKILL)
                wait_until(lambda killed=killed: runs_again(server, killed), PATIENCE_S, "the restart")
        assert [complaint for client in clients for complaint in client.complaints] == []
        assert sum(each.num_whole for each in clients) > 5 * NUM_KILLS
        metrics = http.get("/metrics").text
        assert int(float(metrics.split("\nllmfw_requests_continued_total ")[1].split()[0])) >= NUM_KILLS
        wait_until(
            lambda: http.get(f"/v1/batches/{batch['id']}").json()["status"] in ENDED, PATIENCE_S, "the batch"
        )
        ended = http.get(f"/v1/batches/{batch['id']}").json()
        assert ended["request_counts"] == {"total": 200, "completed": 200, "failed": 0}
        assert batch_complaints(http, ended) == []


@pytest.mark.long
def test_engines_come_and_go_under_load(tmp_path: Path) -> None:
    """Whoever is being answered does not notice: neither a drain, nor an engine less, nor one more."""
    with echo_server(tmp_path, "--replicas", "2", "--max-replicas", "3") as server:
        wait_until(lambda: ready(server) == "2 of 2", PATIENCE_S, "the start")
        clients = [Client(server.url, number) for number in range(NUM_CLIENTS)]
        with (
            httpx.Client(
                base_url=f"{server.url}/admin/replicas", trust_env=False, timeout=PATIENCE_S
            ) as http,
            contextlib.ExitStack() as at_end,
        ):
            for client in clients:
                at_end.callback(client.join, PATIENCE_S)
                at_end.callback(client.stop.set)
                client.start()
            for turn in range(of_length(2, 8)):
                added = http.post("").raise_for_status().json()
                assert added["state"] == "running"
                assert http.post("").json()["error"]["code"] == "no_room"
                time.sleep(0.3)
                drained = str(turn % 3)
                assert http.post(f"/{drained}/drain").json()["state"] in ("draining", "drained")
                time.sleep(0.3)
                http.post(f"/{drained}/undrain").raise_for_status()
                removed = str((turn + 1) % 3)
                gone = http.delete(f"/{removed}", params={"timeout_s": 0.2 * (turn % 2)}).raise_for_status()
                assert gone.json()["state"] == "removed"
                assert len(http.get("").json()["replicas"]) == 2
        assert [complaint for client in clients for complaint in client.complaints] == []
        assert sum(each.num_whole for each in clients) > 10
        metrics = httpx.get(f"{server.url}/metrics", trust_env=False).text
        there = [f'llmfw_kv_tokens{{engine="{i}"}}' in metrics for i in range(3)]
        assert there.count(True) == 2


def test_metrics_tell_engines_apart(server: ServerProcess) -> None:
    wait_until(lambda: ready(server) == "2 of 2", PATIENCE_S, "the start")
    os.kill(server.engine_pids[0], signal.SIGKILL)
    wait_until(lambda: ready(server) == "1 of 2", PATIENCE_S, "noticing the kill")
    assert httpx.get(f"{server.url}/health", trust_env=False).json() == {"status": "ok"}
    wait_until(lambda: ready(server) == "2 of 2", PATIENCE_S, "the restart")
    metrics = httpx.get(f"{server.url}/metrics", trust_env=False).text
    restarts = [metrics.count(f'llmfw_engine_restarts_total{{engine="{i}"}} 1.0') for i in range(2)]
    assert sorted(restarts) == [0, 1]
    assert 'llmfw_kv_tokens{engine="0"} 4096.0' in metrics
    info = httpx.get(f"{server.url}/server_info", trust_env=False).json()
    assert len(info["internal_states"]) == 2
    assert info["max_total_num_tokens"] == 8192


@pytest.mark.long
def test_two_real_engines_answer_alike(tmp_path: Path) -> None:
    """The demo model twice: greedy texts do not depend on the engine, and a kill does not change them."""
    with ServerProcess(tmp_path, "--replicas", "2", "--max-total-tokens", "4000", command=SERVE) as server:
        texts = [f"Say this is test number {i}" for i in range(6)]
        wait_until(lambda: ready(server) == "2 of 2", PATIENCE_S, "the start")

        def answers() -> list[str]:
            found = []
            for text in texts:
                asked = {"model": "demo", "messages": [{"role": "user", "content": text}], "temperature": 0}
                reply = httpx.post(
                    f"{server.url}/v1/chat/completions", json=asked, timeout=60, trust_env=False
                )
                found.append(reply.raise_for_status().json()["choices"][0]["message"]["content"])
            return found

        before = answers()
        assert answers() == before
        os.kill(server.engine_pids[0], signal.SIGKILL)
        assert answers() == before
        metrics = httpx.get(f"{server.url}/metrics", trust_env=False).text
        assert "llmfw_generated_tokens_total{engine=" in metrics


@pytest.mark.long
def test_conversations_find_their_prefix_again(tmp_path: Path) -> None:
    """With the default router, each turn goes to the engine that has the turns before it."""
    with ServerProcess(tmp_path, "--replicas", "2", "--max-total-tokens", "8000", command=SERVE) as server:
        wait_until(lambda: ready(server) == "2 of 2", PATIENCE_S, "the start")
        shares = []
        for number in range(4):  # more conversations than engines
            texts = [f"Conversation {number} is about the number {number}. " * 8]
            for turn in range(3):
                messages = [
                    {"role": "assistant" if i % 2 else "user", "content": text}
                    for i, text in enumerate(texts)
                ]
                asked = {"model": "demo", "messages": messages, "temperature": 0, "max_tokens": 20}
                reply = httpx.post(
                    f"{server.url}/v1/chat/completions", json=asked, timeout=60, trust_env=False
                )
                answer = reply.raise_for_status().json()
                usage = answer["usage"]
                if turn:
                    shares.append(usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"])
                texts += [answer["choices"][0]["message"]["content"], f"And what about turn {turn}?"]
        assert min(shares) > 0.7
        metrics = httpx.get(f"{server.url}/metrics", trust_env=False).text
        computed = [
            float(line.split()[-1])
            for line in metrics.splitlines()
            if line.startswith("llmfw_prompt_tokens_total{") and 'source="computed"' in line
        ]
        assert len(computed) == 2
        assert min(computed) > 0  # both have conversations
