"""A loaded server with keys and a certificate, to which faults can happen, and what its clients were promised meanwhile."""

from __future__ import annotations

import json
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import httpx

from ..doubles.certificates import write_certificate
from ..soak.load import Load, Outcome
from .ledger import Ledger
from .server import ServerProcess, echo_server, wait_until

CHATS = "/v1/chat/completions"
KINDS = ("chat", "stream", "vanish")
RATE = 3.0
LONG = "a" * 250  # takes the echo engine two seconds and a half
BATCH_S = 300.0


class Drill:
    """A served model under load.

    Args:
        folder: for keys, certificates and the server's files.
        storage: the server's.
        is_real: whether the demo model answers, in place of the echo engine.
        num_lines: of each batch.

    Attributes:
        outcomes: of the load's visits.
        absences: (begin, end) of the times, in seconds since the load began, in which the server was being replaced.
    """

    def __init__(self, folder: Path, storage: Path, *, is_real: bool, num_lines: int) -> None:
        self.folder, self.num_lines = folder, num_lines
        self.keys = {name: [secrets.token_hex(16)] for name in ("alice", "prometheus")}
        self.write_keys()
        self.trust = ssl.create_default_context()
        for name in ("first", "second"):
            (folder / name).mkdir()
            cert, key = write_certificate(folder / name, name)
            self.trust.load_verify_locations(cert)
            with (folder / "trusted.pem").open("ab") as trusted:
                trusted.write(cert.read_bytes())
            (folder / f"{name}.pem").write_bytes(cert.read_bytes() + key.read_bytes())
        self.use_certificate("first")
        options = ("--storage", str(storage), "--api-key-file", str(folder / "keys"), "--drain-timeout", "60")
        options += ("--tls-cert", str(folder / "cert.pem"), "--min-free-disk-mb", "1", "--log-level", "info")
        make = ServerProcess if is_real else echo_server
        self.server = make(folder / "server", *options, trust=self.trust)
        self.ledger = Ledger()
        self.outcomes: list[Outcome] = []
        self.absences: list[tuple[float, float]] = []
        self._load = Load(
            self.server.url, list(self.keys["alice"]), RATE, 1, self.outcomes.append, KINDS, self.trust
        )

    def __enter__(self) -> Self:
        self.server.start()
        self._load.__enter__()
        return self

    def __exit__(self, *why: object) -> None:
        try:
            self._load.__exit__(*why)
        finally:
            self.server.__exit__(*why)

    def write_keys(self) -> None:
        """Write the file of keys at once, as an operator should: the server may read it at any moment."""
        scopes = {"prometheus": " scopes=metrics"}
        lines = [f"{name}={key}{scopes.get(name, '')}\n" for name, keys in self.keys.items() for key in keys]
        (self.folder / "new").touch(mode=0o600)
        (self.folder / "new").write_text("".join(lines))
        (self.folder / "new").rename(self.folder / "keys")
        (self.folder / "metrics").write_text(self.keys["prometheus"][-1])

    def use_certificate(self, name: str) -> None:
        (self.folder / "new").write_bytes((self.folder / f"{name}.pem").read_bytes())
        (self.folder / "new").rename(self.folder / "cert.pem")

    def move_clients(self) -> None:
        """Let the load use the newest key alone."""
        self._load.keys = self.keys["alice"][-1:]

    def client(self, key: str = "") -> httpx.Client:
        """Return a client of the tenant with its newest key, or another one, on connections of its own."""
        headers = {"authorization": f"Bearer {key or self.keys['alice'][-1]}"}
        return httpx.Client(
            base_url=self.server.url, headers=headers, verify=self.trust, trust_env=False, timeout=120
        )

    def status(self, key: str) -> int:
        """Return the status of a request with a key."""
        with self.client(key) as http:
            return http.get("/v1/models").status_code

    def certified_as(self) -> str:
        """Return the common name of the certificate that new connections get."""
        address = ("127.0.0.1", self.server.port)
        with (
            socket.create_connection(address) as plain,
            self.trust.wrap_socket(plain, server_hostname=address[0]) as connection,
        ):
            subject = dict(pair for [pair] in connection.getpeercert()["subject"])  # type: ignore[index, misc]
        return str(subject["commonName"])

    def submit(self) -> str:
        """Submit a batch of which no line has a reason to fail, and return its id once a line has a result."""
        body = {"messages": [{"role": "user", "content": "Hello " * 10}], "max_tokens": 40}
        lines = [
            {"custom_id": str(i), "method": "POST", "url": CHATS, "body": body} for i in range(self.num_lines)
        ]
        content = "".join(json.dumps(line) + "\n" for line in lines).encode()
        with self.client() as http:
            files = {"purpose": (None, "batch"), "file": ("in.jsonl", content)}
            file = http.post("/v1/files", files=files).raise_for_status().json()
            self.ledger.files[file["id"]] = content
            asked = {"input_file_id": file["id"], "endpoint": CHATS, "completion_window": "24h"}
            batch_id: str = http.post("/v1/batches", json=asked).raise_for_status().json()["id"]
            self.ledger.batches.add(batch_id)
            wait_until(lambda: self.num_done(batch_id) > 0, 60, "the first line of a batch")
        return batch_id

    def num_done(self, batch_id: str) -> int:
        """Return how many lines of a batch have a result."""
        with self.client() as http:
            return int(http.get(f"/v1/batches/{batch_id}").json()["request_counts"]["completed"])

    def finish(self, batch_id: str) -> None:
        """Return when all lines of a batch have been completed."""
        wait_until(lambda: self.num_done(batch_id) == self.num_lines, BATCH_S, f"batch {batch_id}")

    @contextmanager
    def absence(self) -> Iterator[None]:
        """In this block the server may refuse what is new; at its end it is healthy again."""
        begun = time.monotonic() - self._load.began
        yield
        self.absences.append((begun, time.monotonic() - self._load.began))

    def complaints(self) -> list[str]:
        """Return what the server did that it should not have, to batches, files and visits."""
        with self.client() as http:
            found = self.ledger.complaints(http)
        return found + [
            f"{outcome}" for outcome in self.outcomes if outcome.error and not self._is_excused(outcome)
        ]

    def _is_excused(self, outcome: Outcome) -> bool:
        """Whether a visit was refused, and not cut, because the server was being replaced."""
        refused = any(word in outcome.error for word in ("draining", "ConnectError"))
        return outcome.first_s is None and any(
            outcome.at_s <= end
            and (outcome.at_s >= begin or (refused and outcome.at_s + outcome.total_s >= begin))
            for begin, end in self.absences
        )


class LongStream(threading.Thread):
    """A stream that takes seconds, and is read by a thread of its own.

    Attributes:
        error: what went wrong; empty if it came whole.
    """

    def __init__(self, drill: Drill) -> None:
        super().__init__(daemon=True)
        self.error = "it has not ended"
        self._http = drill.client()
        self._begun = threading.Event()
        self.start()
        assert self._begun.wait(60), self.error

    def run(self) -> None:
        body = {"messages": [{"role": "user", "content": LONG}], "max_tokens": len(LONG), "stream": True}
        last = ""
        try:
            with self._http, self._http.stream("POST", CHATS, json={**body, "ignore_eos": True}) as reply:
                for line in reply.iter_lines():
                    if line.startswith('data: {"error"'):
                        self.error = line
                        return
                    last = line or last
                    self._begun.set()
            self.error = "" if last == "data: [DONE]" else f"it ended with {last!r}"
        except httpx.HTTPError as error:
            self.error = repr(error)

    def result(self) -> str:
        """Wait for its end, and return what went wrong."""
        self.join(120)
        return self.error


def seconds(condition: Callable[[], bool], timeout_s: float, what: str) -> float:
    """Return after how many seconds something has come true; raise TimeoutError if it does not in time."""
    begun = time.monotonic()
    wait_until(condition, timeout_s, what)
    return time.monotonic() - begun
