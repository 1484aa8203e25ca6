"""What a large batch costs the API: validation, latency of other requests, memory, cancelling, the store.

    .venv/bin/python docs/benchmarks/batch_size.py --help

The server is `llmfw serve --storage` with an engine that does nothing (`stub_engine.py`); a client in this process asks
for /v1/models every few milliseconds meanwhile, so what is measured includes the client.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
from servers import Server

from llmfw.core.base.ids import sortable_id
from llmfw.core.interfaces.batch_store import BatchRecord, LineResult
from llmfw.core.interfaces.file_store import FileRecord
from llmfw.plugins.store_sqlite.batches import SqliteBatches
from llmfw.plugins.store_sqlite.files import SqliteFiles

HERE = Path(__file__).resolve().parent
DEMO = HERE.parent.parent / "plugins/model_demo/weights"
ENDPOINT = "/v1/chat/completions"
PROBE_EVERY_S = 0.005
POLL_S = 0.02
FOR_EVER = 90_000  # tokens: lines that are still running when they are cancelled


def main() -> None:
    """Measure as often as asked, and print medians with their spread."""
    options = parse_arguments()
    results: list[dict[str, float]] = []
    for _ in range(options.runs):
        results.append(run_once(options))
        print(json.dumps(results[-1]), flush=True)
    for name in results[0]:
        values = sorted(result[name] for result in results)
        print(f"{name}: {statistics.median(values):.4g} ({values[0]:.4g} to {values[-1]:.4g})")
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n")


def parse_arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=50_000)
    parser.add_argument("--mb", type=int, default=195, help="size of the input file (OpenAI's limit: 200)")
    parser.add_argument("--cancelled", type=int, default=5_000, help="lines of the batch that is cancelled")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def run_once(options: argparse.Namespace) -> dict[str, float]:
    """Return the figures of one server's life, and of the stores alone."""
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(store_costs(Path(folder) / "alone", options.lines))
        large = write_lines(Path(folder) / "large.jsonl", options.lines, options.mb * 10**6, 1)
        small = write_lines(Path(folder) / "small.jsonl", options.cancelled, 0, FOR_EVER)
        with served(Path(folder) / "kept") as server:
            return figures | large_batch(server, large) | cancelled_batch(server, small)


def write_lines(path: Path, num: int, size: int, max_tokens: int) -> Path:
    """Write an input file of so many lines, and of so many bytes (0: as short as it can be)."""
    filler = "x" * max(0, size // num - 190)
    with path.open("w") as file:
        for i in range(num):
            messages = [{"role": "system", "content": ""}, {"role": "user", "content": "Hi"}]
            body = {"model": "demo", "messages": messages, "max_tokens": max_tokens, "user": filler}
            line = {"custom_id": f"request-{i}", "method": "POST", "url": ENDPOINT, "body": body}
            file.write(json.dumps(line) + "\n")
    return path


@contextmanager
def served(storage: Path) -> Iterator[Server]:
    """Run the server until the block ends."""
    command = [sys.executable, str(HERE / "stub_llmfw.py"), "{folder}", "{port}", "1", "0.02", str(storage)]
    server = Server("llmfw", command)
    with open(storage.parent / "log", "wb") as log:
        server.start(DEMO, log)
        try:
            yield server
        finally:
            server.stop()


@dataclass
class Probe:
    """Asks a server for its models, again and again, on a connection of its own.

    Attributes:
        seconds: what each answer took.
    """

    port: int
    seconds: list[float] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Ask until it is ended."""
        import http.client

        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        while not self.ended.wait(PROBE_EVERY_S):
            begun = time.perf_counter()
            connection.request("GET", "/v1/models")
            connection.getresponse().read()
            self.seconds.append(time.perf_counter() - begun)
        connection.close()

    def p99_ms(self) -> float:
        """Return the 99th percentile in milliseconds."""
        return sorted(self.seconds)[int(len(self.seconds) * 0.99)] * 1e3


@contextmanager
def probing(server: Server) -> Iterator[Probe]:
    """Probe a server until the block ends."""
    probe = Probe(server.port)
    thread = threading.Thread(target=probe.run)
    thread.start()
    try:
        yield probe
    finally:
        probe.ended.set()
        thread.join()


def large_batch(server: Server, path: Path) -> dict[str, float]:
    """Upload a file and have it validated; the batch is cancelled then."""
    sdk = openai.OpenAI(base_url=f"{server.url}/v1", api_key="None", max_retries=0)
    with probing(server) as idle:
        time.sleep(3)
    before = resident_mb(server)
    with probing(server) as during_upload, path.open("rb") as file:
        begun = time.monotonic()
        uploaded = sdk.files.create(file=file, purpose="batch")
        upload_s = time.monotonic() - begun
    with probing(server) as during:
        begun = time.monotonic()
        batch = sdk.batches.create(input_file_id=uploaded.id, endpoint=ENDPOINT, completion_window="24h")
        while batch.status == "validating":
            time.sleep(POLL_S)
            batch = sdk.batches.retrieve(batch.id)
        validation_s = time.monotonic() - begun
    assert batch.status == "in_progress", batch
    peak = resident_mb(server, "VmHWM")
    cancel(sdk, batch.id)
    return {
        "models_p99_ms_idle": idle.p99_ms(),
        "models_p99_ms_during_upload": during_upload.p99_ms(),
        "models_p99_ms_during_validation": during.p99_ms(),
        "upload_s": upload_s,
        "validation_s": validation_s,
        "resident_mb_before": before,
        "resident_mb_growth": peak - before,
    }


def cancelled_batch(server: Server, path: Path) -> dict[str, float]:
    """Cancel a batch of which all lines run."""
    sdk = openai.OpenAI(base_url=f"{server.url}/v1", api_key="None", max_retries=0)
    with path.open("rb") as file:
        uploaded = sdk.files.create(file=file, purpose="batch")
    batch = sdk.batches.create(input_file_id=uploaded.id, endpoint=ENDPOINT, completion_window="24h")
    while sdk.batches.retrieve(batch.id).status == "validating":
        time.sleep(POLL_S)
    time.sleep(8)  # lets the lines be sent
    answer_s, cancel_s = cancel(sdk, batch.id)
    ended = sdk.batches.retrieve(batch.id)
    num_lines = len(sdk.files.content(str(ended.error_file_id)).text.splitlines())
    assert num_lines == sum(1 for _ in path.open()), (num_lines, ended)
    return {"cancel_answer_s": answer_s, "cancel_s": cancel_s}


def cancel(sdk: openai.OpenAI, batch_id: str) -> tuple[float, float]:
    """Return the seconds until the server answers, and until the batch is cancelled."""
    begun = time.monotonic()
    assert sdk.batches.cancel(batch_id).status == "cancelling"
    answered = time.monotonic() - begun
    while (status := sdk.batches.retrieve(batch_id).status) == "cancelling":
        time.sleep(POLL_S)
    assert status == "cancelled", status
    return answered, time.monotonic() - begun


def resident_mb(server: Server, name: str = "VmRSS") -> float:
    """Return what the API process has in memory, in MB (Linux)."""
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024 / 1e6


async def store_costs(folder: Path, num: int) -> dict[str, float]:
    """Return what the stores alone take for a line of 1 kB, from its result to the output file."""
    batches, files = SqliteBatches(folder), SqliteFiles(folder)
    record = BatchRecord(
        id=sortable_id("batch_"),
        endpoint=ENDPOINT,
        input_file_id="file-0",
        completion_window="24h",
        status="in_progress",
        created_at=0,
        expires_at=2**31,
    )
    await batches.create(record)
    results, data = batches.results(record.id), os.urandom(500).hex().encode()
    begun, used = time.perf_counter(), time.process_time()
    for start in range(0, num, 50):
        await results.add([LineResult(line, False, data) for line in range(start, start + 50)])
    added = time.perf_counter()

    async def chunks() -> Any:
        async for lines in results.lines(failed=False):
            yield b"\n".join(lines) + b"\n"

    def describe(size: int) -> FileRecord:
        return FileRecord(
            id=sortable_id("file-"), filename="out", purpose="batch_output", bytes=size, created_at=0
        )

    await files.put(chunks(), describe)
    written = time.perf_counter()
    used = time.process_time() - used
    await batches.close()
    await files.close()
    return {
        "store_add_us_a_line": (added - begun) / num * 1e6,
        "store_write_us_a_line": (written - added) / num * 1e6,
        "store_cpu_us_a_line": used / num * 1e6,
    }


if __name__ == "__main__":
    main()
