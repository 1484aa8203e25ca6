"""The whole path: a server, and clients on the same machine that stream from it, next to the same engine without both.

The requests are those of `decode`: equal ones that come together, and begin alike. Their clients are those of
`llmfw bench`.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from limits import GOALS
from lines import Line
from task import Task

from llmfw.plugins.bench.client import CompletionClient
from llmfw.plugins.bench.prompts import TokenIds
from llmfw.plugins.bench.report import figures_of
from llmfw.plugins.bench.runner import run_workload
from llmfw.plugins.bench.workloads import Workload

sys.path.append(str(Path(__file__).resolve().parents[2]))
from servers import free_port, get_json

PATIENCE_S = 90.0


def measure(task: Task) -> Iterator[Line]:
    """Start a server, and measure it with each number of clients after a shorter run that does not count."""
    with serving(task) as url:
        for clients in task.sizes.clients:
            run_clients(task, url, clients, min(20, task.sizes.output), "warm-up")
            yield as_line(task, clients, run_clients(task, url, clients, task.sizes.output, "measured"))


@contextmanager
def serving(task: Task) -> Iterator[str]:
    """Run a server with random weights; give its address."""
    sizes, port = task.sizes, free_port()
    command = [sys.executable, "-m", "llmfw.api", "serve", str(task.model), "--load-format", "dummy"]
    command += ["--port", str(port), "--device", sizes.device, "--dtype", sizes.dtype]
    command += ["--attention", task.attention, "--context-length", str(sizes.context)]
    if task.prefill_attention is not None:
        command += ["--prefill-attention", task.prefill_attention]
    command += ["--max-total-tokens", str(sizes.kv_tokens)]
    command += ["--max-running-requests", str(sizes.most_running)]
    # It stays in this stage's group of processes, so that it ends with it whatever happens.
    process = subprocess.Popen(command)
    url = f"http://127.0.0.1:{port}"
    begun = time.monotonic()
    try:
        while not answers(url):
            if process.poll() is not None:
                raise RuntimeError(f"the server ended with {process.returncode}; see the log")
            if time.monotonic() - begun > PATIENCE_S:
                raise RuntimeError(f"the server was not ready after {PATIENCE_S:.0f} s; see the log")
            time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()


def answers(url: str) -> bool:
    """Whether a server generates a token."""
    try:
        model = get_json(f"{url}/v1/models")["data"][0]["id"]
        body = {"model": model, "prompt": [5, 6, 7], "max_tokens": 1, "temperature": 0}
        return bool(get_json(f"{url}/v1/completions", body)["choices"])
    except (OSError, LookupError, ValueError):
        return False


def run_clients(task: Task, url: str, clients: int, output: int, seed: str) -> dict[str, Any]:
    """Return the figures of so many clients that send one request each, at once."""
    sizes = task.sizes
    workload = Workload("clients", clients, clients, sizes.prompt - sizes.shared, output, shared=sizes.shared)
    prompts = TokenIds(range(2, min(3000, sizes.model["vocab_size"])))

    async def run() -> dict[str, Any]:
        client = CompletionClient(url, timeout=PATIENCE_S)
        await client.find_model()
        return figures_of(await run_workload(client, workload, prompts, f"{seed} {clients} {output}"))

    return asyncio.run(run())


def as_line(task: Task, clients: int, figures: dict[str, Any]) -> Line:
    """Return the line of a run, with its ratio to the same requests without a server."""
    alone = [line.detail["tok_s"] for line in task.lines("decode") if line.detail.get("batch") == clients]
    told = f"TTFT {figures['ttft_p50_ms']} / {figures['ttft_p99_ms']} ms, "
    told += f"ITL {figures['itl_p50_ms']} / {figures['itl_p99_ms']} ms (p50 / p99)"
    bad = figures["failed"] or figures["short"]
    if bad:
        told = (
            f"{figures['failed']} failed, {figures['short']} short: {figures.get('first_error', '')}; {told}"
        )
    return Line(
        f"HTTP, {clients} streams",
        tok_s=figures["output_tok_s"],
        ms=1000 * figures["wall_s"],
        ratio=figures["output_tok_s"] / max(alone) if alone else None,
        goal=f"http {clients}" if f"http {clients}" in GOALS else None,
        note=(f"of offline's {max(alone):,.0f} tok/s; " if alone else "no figure offline; ") + told,
        failed=bool(bad),
        detail=figures,
    )
