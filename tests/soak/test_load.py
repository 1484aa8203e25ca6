"""The load of a soak waits for nobody, repeats itself by its seed, and says what went wrong."""

from __future__ import annotations

import http.server
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from .load import Load, Outcome
from .meter import readings
from .report import Soak
from .run import Sample, soak

CHAT = ["chat"]


class Refusing(http.server.BaseHTTPRequestHandler):
    """Answers each request with 500, once it may."""

    may_answer = threading.Event()
    num_asked = 0

    def do_POST(self) -> None:
        type(self).num_asked += 1
        self.rfile.read(int(self.headers.get("content-length", 0)))  # else closing resets the connection
        self.may_answer.wait(20)
        self.send_response(500)
        self.send_header("content-length", "0")
        self.end_headers()

    do_GET = do_POST  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 1000


@pytest.fixture
def url() -> Iterator[str]:
    Refusing.may_answer.clear()
    Refusing.num_asked = 0
    with Server(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        Refusing.may_answer.set()
        server.shutdown()
        thread.join()


def test_visits_begin_while_others_wait(url: str) -> None:
    outcomes: list[Outcome] = []
    with Load(url, [], 200, 1, outcomes.append, CHAT):
        deadline = time.monotonic() + 20
        while Refusing.num_asked < 20 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert outcomes == []
        Refusing.may_answer.set()
    assert len(outcomes) >= 20
    assert all(outcome.error.startswith("WrongReplyError: /v1/chat/completions: 500") for outcome in outcomes)
    assert all(outcome.total_s > 0 for outcome in outcomes)


def test_a_seed_gives_times_and_kinds(url: str) -> None:
    Refusing.may_answer.set()
    runs: list[list[Outcome]] = []
    for seed in (1, 1, 2):
        outcomes: list[Outcome] = []
        with Load(url, ["a", "b"], 500, seed, outcomes.append):
            while len(outcomes) < 30:
                time.sleep(0.01)
        runs.append(sorted(outcomes, key=lambda outcome: outcome.at_s)[:10])
    first, again, other = ([(round(each.at_s, 6), each.kind) for each in run] for run in runs)
    assert first == again != other


def test_a_reading_counts_what_is_open() -> None:
    [before] = [each for each in readings(os.getpid()) if each.role == "api"]
    with socket.socket(), socket.socket():
        [during] = [each for each in readings(os.getpid()) if each.role == "api"]
    assert during.descriptors == before.descriptors + 2
    assert before.threads == len(os.listdir("/proc/self/task"))
    assert 0 < before.pss <= before.rss
    assert before.processor_s > 0


@pytest.mark.long  # a server with the demo model, soaked for 20 seconds
def test_every_visit_to_a_sound_server_succeeds(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert soak(tmp_path, 20, 6, 1, port, every_s=2) == 0
    samples = msgspec.json.Decoder(Sample).decode_lines((tmp_path / "samples.jsonl").read_bytes())
    visits = msgspec.json.Decoder(Outcome).decode_lines((tmp_path / "visits.jsonl").read_bytes())
    assert [visit.error for visit in visits if visit.error] == []
    assert {"chat", "stream", "vanish", "grammar", "tools", "files"} <= {visit.kind for visit in visits}
    assert {"api", "engine"} <= set(Soak(samples, visits, 0).roles())
    assert samples[-1].figures["llmfw_requests_started_total"] > 0
