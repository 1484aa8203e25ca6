"""Where the time of a CPU's cores goes while llmfw serves: products, attention, waiting, Python, HTTP, the client.

    .venv/bin/python docs/benchmarks/cpu_profile.py --scale 0.5 --page docs/benchmarks.md

Serves a model as bench_peers.py does, runs one workload after the other, each with its warm-up, and lets `perf` (Debian's
linux-perf, or your kernel's) look every two milliseconds at what each core does. What is shown is the share of all cores'
time. A thread of ours that waits for another one, or that the system has pushed aside, is no work: it is shown as such.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from machine import describe_machine
from peers import models
from peers.ours import LLMFW
from servers import Server, llmfw, session_processes
from tables import row, write_between

from llmfw.plugins.bench.workloads import WORKLOADS

HERE = Path(__file__).resolve().parent
WORK = HERE.parent.parent / ".bench"
SAMPLES = 499  # a second and core; no multiple of what the system does at its own rate

ENGINE, API, CLIENT, IDLE, OTHERS = "engine", "API process", "client", "idle", "others"
PRODUCTS, ATTENTION, NATIVE, WAITING = "products", "attention", "other native code", "threads waiting"
COLLECTION, TORCH, KERNEL, PYTHON = "garbage collection", "torch", "system calls", "Python and the rest"
SHOWN = (
    PRODUCTS,
    ATTENTION,
    NATIVE,
    WAITING,
    COLLECTION,
    TORCH,
    KERNEL,
    PYTHON,
    API,
    CLIENT,
    OTHERS,
    IDLE,
)
"""Columns: those of the engine's process first."""

LINE = re.compile(r"^\s*(?P<comm>.+?)\s+(?P<pid>\d+)\s+[0-9a-f]+ (?P<symbol>.*) \((?P<file>.*)\)$")
"""One sample, as `perf script -F comm,pid,ip,sym,dso` prints it."""

PLACES = (
    (KERNEL, r".", r"kernel|\[vdso\]|\.ko$"),
    (ATTENTION, r"attention|Attention", r"/native-"),
    (PRODUCTS, r"multiply|copy_row|sums_of|_sums|widen", r"/native-"),
    (WAITING, r"llmfw::run$|Pool::|_M_run", r"/native-"),
    (NATIVE, r".", r"/native-"),
    (WAITING, r".", r"libgomp|libiomp"),
    (COLLECTION, r"^gc_|_traverse$|^visit_|^subtype_traverse|IS_GC", r"python"),
    (TORCH, r".", r"libtorch|libc10|libmkl|libdnnl"),
)
"""What a place in the engine's process belongs to: the first whose symbol and file match."""


@dataclass(frozen=True)
class Processes:
    """Process ids of a server's API, of its other processes, and of the client."""

    api: int
    engine: frozenset[int]
    client: int

    def owner(self, pid: int) -> str:
        """Return whose a process is; 0 is nobody's."""
        if pid in self.engine:
            return ENGINE
        return {0: IDLE, self.api: API, self.client: CLIENT}.get(pid, OTHERS)


def main() -> None:
    """Measure, and write what was found."""
    options = parse_arguments()
    if shutil.which("perf") is None:
        sys.exit("Error: there is no perf on the PATH; Debian has it as linux-perf")
    WORK.mkdir(exist_ok=True)
    found: dict[str, Any] = {"machine": describe_machine(), "models": {}}
    for model in options.models:
        folder = models.model_folder(model, WORK)
        server = llmfw(LLMFW)
        try:
            with (WORK / "cpu_profile.log").open("wb") as log:
                server.start(folder, log)
            found["models"][models.MODELS[model]] = {
                workload: profile(server, folder, workload, options.scale) for workload in options.workloads
            }
        finally:
            server.stop()
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    text = "\n".join(page_of(found))
    print(text)
    if options.page:
        write_between(options.page, "cpu_profile", text)


def parse_arguments() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--models", nargs="+", choices=models.MODELS, default=list(models.MODELS))
    add("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    add("--scale", type=float, default=1.0, help="multiplies the number of requests (default 1)")
    add("--out", type=Path, default=HERE / "cpu_profile.json", help="results (default beside this file)")
    add("--page", type=Path, help="page between whose markers the table is written")
    return parser.parse_args()


def profile(server: Server, folder: Path, workload: str, scale: float) -> dict[str, Any]:
    """Run a workload; return what the client saw, and the share of all cores' time by what it went to."""
    assert server.process is not None
    command = [str(LLMFW), "bench", "--base-url", server.url, "--workload", workload, "--json"]
    command += ["--runs", "1", "--scale", str(scale), "--tokenizer", str(folder)]
    with tempfile.TemporaryDirectory() as kept:
        samples = Path(kept) / "samples"
        record = ["perf", "record", "--all-cpus", "--freq", str(SAMPLES), "--output", str(samples)]
        with subprocess.Popen(record, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as perf:
            try:
                with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
                    shown = client.communicate()[0]
            finally:
                perf.send_signal(signal.SIGINT)  # upon which it writes what it has
        script = ["perf", "script", "--input", str(samples), "--fields", "comm,pid,ip,sym,dso"]
        lines = subprocess.run(script, capture_output=True, text=True, check=True, env=os.environ).stdout
    api = server.process.pid
    processes = Processes(api, frozenset(session_processes(api)) - {api}, client.pid)
    counted = json.loads(shown)["runs"][0]
    seen = {name: counted[name] for name in ("output_tok_s", "itl_p50_ms", "ttft_p50_ms")}
    return seen | {"shares": shares(lines.splitlines(), processes)}


def shares(lines: Iterable[str], processes: Processes) -> dict[str, float]:
    """Return the share of samples, 0 to 1, that each of `SHOWN` has."""
    counts = Counter(place for line in lines if (place := place_of(line, processes)))
    return {name: round(counts[name] / max(1, counts.total()), 4) for name in SHOWN}


def place_of(line: str, processes: Processes) -> str | None:
    """Return which of `SHOWN` a sample belongs to; None: the line is none."""
    sample = LINE.match(line)
    if sample is None:
        return None
    owner = processes.owner(int(sample["pid"]))
    return owner if owner != ENGINE else place_in_engine(sample["symbol"], sample["file"])


def place_in_engine(symbol: str, file: str) -> str:
    """Return what a place in the engine's process belongs to."""
    for name, symbols, files in PLACES:
        if re.search(files, file) and re.search(symbols, symbol):
            return name
    return PYTHON


def page_of(found: dict[str, Any]) -> list[str]:
    """Return the lines of the tables."""
    machine = found["machine"]
    lines = [
        f"{machine['date']}, commit {machine['commit'] or 'unknown'}, {machine['cpu']}, {machine['cores']} cores."
    ]
    for model, workloads in found["models"].items():
        lines += ["", f"### {model}", "", row(["of all cores' time", *workloads])]
        lines.append(row(["---"] * (1 + len(workloads))))
        for name in SHOWN:
            lines.append(row([name, *(f"{100 * each['shares'][name]:.1f} %" for each in workloads.values())]))
        for name, title in (
            ("output_tok_s", "output tok/s"),
            ("itl_p50_ms", "ITL p50, ms"),
            ("ttft_p50_ms", "TTFT p50, ms"),
        ):
            lines.append(row([title, *(f"{each[name]:.1f}" for each in workloads.values())]))
    return lines


if __name__ == "__main__":
    main()
