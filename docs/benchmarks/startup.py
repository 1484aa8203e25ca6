"""How long `llmfw serve` takes from its start to the first token of an answer.

python docs/benchmarks/startup.py [MODEL …] [--runs 5] [--first 2] [--page docs/benchmarks.md]

A model is a name, as `demo`, or a folder. Warm runs are of what a user has after the first start. A first one after
`pip install`, which writes Python's bytecode, is with an empty folder for what llmfw keeps (native code is compiled);
"first time ever" is with none for bytecode either, as other installers leave it. What a first time leaves
with the operating system, the files in memory, stays: nobody can empty that without being root. Runs of models and kinds
take turns, so that what else the machine does meets all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import httpx
from tables import row, write_between

NAME = "startup"
WARM, INSTALLED, FIRST = "warm", "first after `pip install`", "first time ever"
KINDS = (WARM, INSTALLED, FIRST)


class Start(NamedTuple):
    """One start: seconds to the ready line, and to the first token; processor seconds of both processes."""

    ready_s: float
    token_s: float
    cpu_s: float


def start(model: str, environment: dict[str, str]) -> Start:
    """Start a server, ask it for a token, and end it."""
    begun = time.perf_counter()
    before = os.times()
    process = subprocess.Popen(
        [sys.executable, "-m", "llmfw.api", "serve", model, "--port", "0"],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    with process.stderr:
        try:
            url, lines = "", []
            for line in process.stderr:
                lines.append(line)
                if found := re.search(r"running on (http://\S+)", line):
                    url = found[1]
                if "ready to roll" in line:
                    break
            if not url:
                raise SystemExit(f"the server of {model} did not start:\n{''.join(lines[-5:])}")
            ready_s = time.perf_counter() - begun
            token_s = first_token(url) - begun
        finally:
            process.send_signal(signal.SIGTERM)
            process.stderr.read()
            process.wait(30)
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return Start(ready_s, token_s, cpu_s)


def first_token(url: str) -> float:
    """Return when the first token of an answer came."""
    body = {"messages": [{"role": "user", "content": "Hello"}], "stream": True, "max_tokens": 64}
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=120) as reply:
        reply.raise_for_status()
        for line in reply.iter_lines():
            if line.startswith("data: {"):
                choices = json.loads(line.removeprefix("data: "))["choices"]
                delta = choices[0]["delta"] if choices else {}
                if delta.get("content") or delta.get("reasoning_content"):
                    return time.perf_counter()
    raise SystemExit("the server answered without a token")


def environment_of(kind: str, folder: str) -> dict[str, str]:
    """Return the environment of a start."""
    # A shell that writes no bytecode would have every start compile what was not installed with it.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    if kind != WARM:
        environment["XDG_CACHE_HOME"] = folder
    if kind == FIRST:
        environment["PYTHONPYCACHEPREFIX"] = f"{folder}/bytecode"
    return environment


def measure(models: list[str], runs: int, first: int) -> dict[tuple[str, str], list[Start]]:
    """Return all starts by model and kind."""
    found: dict[tuple[str, str], list[Start]] = {(model, kind): [] for model in models for kind in KINDS}
    for model in models:
        start(model, environment_of(WARM, ""))  # so that native code and bytecode are there
    for turn in range(max(runs, first)):
        for (model, kind), starts in found.items():
            if turn < (runs if kind == WARM else first):
                with tempfile.TemporaryDirectory() as folder:
                    starts.append(start(model, environment_of(kind, folder)))
                print(f"{model}, {kind}: {starts[-1].token_s:.2f} s to the first token", file=sys.stderr)
    return found


def table(found: dict[tuple[str, str], list[Start]]) -> str:
    """Return the starts as a table, medians and ranges."""
    lines = [
        row(("model", "start", "runs", "ready, s", "first token, s", "processor time, s")),
        row(["---"] * 6),
    ]
    for (model, kind), starts in found.items():
        if starts:
            figures = [spread([getattr(each, name) for each in starts]) for name in Start._fields]
            lines.append(row((Path(model).name, kind, str(len(starts)), *figures)))
    cores = os.cpu_count() or 1
    load = os.getloadavg()[2] if hasattr(os, "getloadavg") else 0.0
    lines += [
        "",
        f"{cores} cores, with a load of {load:.1f} over the last 15 minutes, these starts included.",
    ]
    return "\n".join(lines)


def spread(values: list[float]) -> str:
    """Return median and range."""
    return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def main() -> None:
    """Measure, and print the table or write it on a page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=["demo"], metavar="MODEL")
    parser.add_argument("--runs", type=int, default=5, help="warm starts of each model")
    parser.add_argument("--first", type=int, default=2, help="first starts of each model")
    parser.add_argument("--page", type=Path, help="a page with the markers of 'startup'")
    asked = parser.parse_args()
    text = table(measure(asked.models or ["demo"], asked.runs, asked.first))
    if asked.page is None:
        print(text)
    else:
        write_between(asked.page, NAME, text)


if __name__ == "__main__":
    main()
