"""What a streamed token costs the API process: 200 streams of chat from an engine that does nothing.

    .venv/bin/python docs/benchmarks/streaming_cost.py --help

The same for `transformers serve` (FastAPI), whose model is replaced in the same way. The servers take turns. Counted is
the CPU time of llmfw's whole API process, and of the event loop's thread alone for transformers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from servers import Server

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SHORT = 4  # tokens of a stream whose cost is that of its request
DEMO = ROOT / "plugins/model_demo/weights"


def main() -> None:
    """Measure, and print one line for each server."""
    options = parse_arguments()
    results: dict[str, list[dict[str, float]]] = {}
    for _ in range(options.runs):
        for server, whole in servers(options):
            results.setdefault(server.name, []).append(measure(server, whole, options))
            print(server.name, json.dumps(results[server.name][-1]), flush=True)
    for name, runs in results.items():
        costs = sorted(run["us_per_token"] for run in runs)
        rate = statistics.median(run["tokens_per_s"] for run in runs)
        median = statistics.median(costs)
        print(f"{name}: {median:.1f} µs a token ({costs[0]:.1f} to {costs[-1]:.1f}) at {rate:.0f} tokens/s")
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n")


def parse_arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=400, help="of each stream")
    parser.add_argument(
        "--step", type=float, default=0.05, help="seconds from one token of a stream to the next"
    )
    parser.add_argument(
        "--intervals", type=int, nargs="+", default=[1, 8], help="of llmfw's --stream-interval"
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--peer", type=Path, help="Python of an environment with transformers[serving]")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def servers(options: argparse.Namespace) -> list[tuple[Server, bool]]:
    """Return the servers, and whether all of the process counts."""
    found = []
    for interval in options.intervals:
        command = [sys.executable, str(HERE / "stub_llmfw.py"), "{folder}", "{port}", str(interval)]
        found.append((Server(f"llmfw --stream-interval {interval}", [*command, str(options.step)]), True))
    if options.peer:
        command = [
            str(options.peer),
            str(HERE / "stub_transformers.py"),
            str(options.step),
            "serve",
            "{folder}",
        ]
        command += ["--host", "127.0.0.1", "--port", "{port}", "--continuous-batching", "--device", "cpu"]
        found.append((Server("transformers serve", command, model_name="{folder}"), False))
    return found


def measure(server: Server, whole: bool, options: argparse.Namespace) -> dict[str, float]:
    """Start a server, read the streams, and return what a token cost."""
    with open(os.devnull, "wb") as log:
        server.start(DEMO, log)
    try:
        assert server.process is not None
        asyncio.run(read_streams(server, options.streams, SHORT))  # warms up
        used, seconds = [0.0, 0.0], 0.0
        for i, tokens in enumerate((SHORT, options.tokens)):
            before, begun = cpu_seconds(server.process, whole), time.monotonic()
            asyncio.run(read_streams(server, options.streams, tokens))
            seconds, used[i] = time.monotonic() - begun, cpu_seconds(server.process, whole) - before
    finally:
        server.stop()
    more = (options.tokens - SHORT) * options.streams
    return {
        "us_per_token": (used[1] - used[0]) / more * 1e6,
        "us_per_request": used[0] / options.streams * 1e6,
        "tokens_per_s": options.tokens * options.streams / seconds,
    }


def cpu_seconds(process: subprocess.Popen[bytes], whole: bool) -> float:
    """Return the CPU time of a process without its children, or of its main thread (Linux)."""
    path = f"/proc/{process.pid}/stat" if whole else f"/proc/{process.pid}/task/{process.pid}/stat"
    fields = Path(path).read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def read_streams(server: Server, num: int, tokens: int) -> None:
    """Read so many streams at once."""
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "max_tokens": tokens,
    }
    if server.model:
        body["model"] = server.model
    await asyncio.gather(*(read_stream(server.port, json.dumps(body).encode()) for _ in range(num)))


async def read_stream(port: int, body: bytes) -> None:
    """Send a request and read its answer to the end, at the least cost."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-length: {len(body)}\r\n"
    writer.write(head.encode() + b"content-type: application/json\r\n\r\n" + body)
    size, last = 0, b""
    while data := await reader.read(2**16):
        size, last = size + len(data), (last + data)[-500:]
    writer.close()
    if b'"length"' not in last:
        raise RuntimeError(f"a stream of {size} bytes ended with {last!r}")


if __name__ == "__main__":
    main()
