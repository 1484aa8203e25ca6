"""Soaks a server: a mixed load for hours, in which memory, descriptors and latency are recorded.

    python -m tests.soak.run FOLDER --hours 2 --rate 2
    python -m tests.soak.report FOLDER

FOLDER is given `samples.jsonl`, what the processes held every 30 seconds, `visits.jsonl`, what became of each visit, and the
server's storage and log. Both files are written as they grow, so that the report can be read meanwhile.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import httpx
import msgspec

from .load import Load, Outcome
from .meter import Reading, readings
from .visits import KINDS

KV_TOKENS = 40_000
"""So few that the prefix cache is full, and evicts, before the warm-up has ended."""
RESPONSES_MB = 1
"""So few that stored responses go before the warm-up has ended."""
TENANTS = ("alice", "bob", "carol")
SCRAPE_S = 5.0
START_TIMEOUT_S = 300.0


class Sample(msgspec.Struct, frozen=True):
    """What a server held at a moment.

    Attributes:
        at_s: seconds since the load began.
        figures: of the server's metrics without labels, and those of `SUMMED` by their sums.
    """

    at_s: float
    processes: list[Reading]
    figures: dict[str, float]


SUMMED = (
    "llmfw_running_requests",
    "llmfw_waiting_requests",
    "llmfw_kv_used_tokens",
    "llmfw_kv_cached_tokens",
    "llmfw_kv_evicted_tokens_total",
    "llmfw_requests_started_total",
    "llmfw_requests_finished_total",
    "llmfw_request_errors_total",
    "llmfw_generated_tokens_total",
    "llmfw_steps_total",
    "llmfw_batch_jobs",
    "llmfw_batch_jobs_finished_total",
    "llmfw_engine_restarts_total",
    "llmfw_observer_dropped_events_total",
)


def figures(text: str) -> dict[str, float]:
    """Return some of a server's metrics, each summed over its labels."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name in SUMMED:
            found[name] = found.get(name, 0.0) + float(line.rpartition(" ")[2])
    return found


class SoakedServer:
    """`llmfw serve demo` with three tenants, a key for metrics, and small limits on what it keeps."""

    def __init__(self, folder: Path, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.keys = {name: secrets.token_hex(16) for name in (*TENANTS, "prometheus")}
        lines = [
            f"{name}={key}" + " scopes=metrics" * (name == "prometheus") for name, key in self.keys.items()
        ]
        for name, text in {"keys": "\n".join(lines), "admin": secrets.token_hex(16)}.items():
            (folder / name).touch(mode=0o600)
            (folder / name).write_text(text + "\n")
        options = {
            "--port": port,
            "--api-key-file": folder / "keys",
            "--admin-api-key-file": folder / "admin",
            "--storage": folder / "storage",
            "--max-total-tokens": KV_TOKENS,
            "--response-store-mb": RESPONSES_MB,
            "--observers": "request-metrics,request-log",
        }
        command = [sys.executable, "-m", "llmfw.api", "serve", "demo"]
        command += [str(part) for option in options.items() for part in option]
        with (folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def wait(self) -> None:
        """Return when it is ready.

        Raises:
            TimeoutError: it was not in time.
            RuntimeError: it has ended.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                if httpx.get(f"{self.url}/health/ready", trust_env=False).is_success:
                    return
            except httpx.TransportError:
                pass
            if self.process.poll() is not None:
                raise RuntimeError("the server has ended; its log says why")
            if time.monotonic() > deadline:
                raise TimeoutError("the server was not ready in time")
            time.sleep(0.2)

    def stop(self) -> int:
        """End it as a user would, and return its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)


class Recorder:
    """Writes an object on each line, as it comes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._encode = msgspec.json.Encoder().encode

    def __call__(self, item: Sample | Outcome) -> None:
        self._file.write(self._encode(item) + b"\n")
        self._file.flush()


def soak(
    folder: Path,
    seconds: float,
    rate: float,
    seed: int,
    port: int,
    every_s: float = 30.0,
    kinds: Sequence[str] = (),
) -> int:
    """Soak a server, and return the exit status with which it ends.

    Args:
        every_s: between two samples.
        kinds: of visits; empty for all.
    """
    folder.mkdir(parents=True, exist_ok=True)
    server = SoakedServer(folder, port)
    try:
        server.wait()
        key = {"authorization": f"Bearer {server.keys['prometheus']}"}
        with (
            (folder / "samples.jsonl").open("wb") as samples,
            (folder / "visits.jsonl").open("wb") as visits,
            httpx.Client(base_url=server.url, headers=key, trust_env=False, timeout=60) as scraper,
            Load(server.url, [server.keys[name] for name in TENANTS], rate, seed, Recorder(visits), kinds),
        ):
            write, began = Recorder(samples), time.monotonic()
            next_sample = 0.0
            while (at_s := time.monotonic() - began) < seconds:
                text = scraper.get("/metrics").raise_for_status().text
                if at_s >= next_sample:
                    write(Sample(at_s, readings(server.process.pid), figures(text)))
                    next_sample += every_s
                time.sleep(min(SCRAPE_S, every_s))
    finally:
        status = server.stop()
    return status


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--rate", type=float, default=2.0, help="visits in a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=float, default=30.0, help="seconds between two samples")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=(), help="of visits; all without it")
    parser.add_argument("--port", type=int, default=30900)
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(soak(args.folder, args.hours * 3600, args.rate, args.seed, args.port, args.every, args.kinds))


if __name__ == "__main__":
    main()
