"""Measures llmfw on a GPU, next to what the GPU can do: one command, a table at the end.

    python docs/benchmarks/gpu/run.py            on a machine with a GPU; takes under 8 minutes
    python docs/benchmarks/gpu/run.py --dry      the same code on a CPU with a tiny model; its figures mean nothing

Stages run one after the other, each in a process of its own that is ended at its time limit, so a failure costs a line
of the table and no more. The table, all figures as JSON and the log go to $OUT, or to docs/benchmarks/gpu/results; they
are written anew after each stage. Exits with 1 if a stage failed. Needs nothing but the standard library: the first
stage installs what the others need.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from lines import Line, summary, table
from task import ROOT, Task

HERE = Path(__file__).resolve().parent

STAGES: dict[str, float] = {
    "install": 45,
    "machine": 30,
    "ceilings": 45,
    "decode": 170,
    "server": 110,
    "peer_minisgl": 80,
    "tests": 120,
    "peer_transformers": 90,
    "attention": 60,
    "linear": 60,
    "sampling_kernels": 40,
    "backends": 90,
    "kv_dtype": 60,
}
"""Most seconds of each. What they take is less; see docs/benchmarks/gpu.md."""

TOTAL_S = 520.0
"""Most seconds of all stages together: what is left then is left out."""

COMMIT = "LLMFW_COMMIT"
"""Environment variable that names the commit of a copy without .git."""


class Results:
    """The lines of all stages, and where they are written.

    Args:
        out: folder, made if it is not there.
        about: of the run, for the results' file.
    """

    def __init__(self, out: Path, about: dict[str, str]) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self._out = out
        self._about = about
        self.stages: dict[str, list[Line]] = {}

    @property
    def text(self) -> str:
        """The table, and below it what failed."""
        lines = [line for several in self.stages.values() for line in several]
        return f"{table(lines)}\n\n{summary(self.stages)}"

    @property
    def failed(self) -> bool:
        """Whether any line did."""
        return any(line.failed for several in self.stages.values() for line in several)

    def add(self, stage: str, lines: list[Line]) -> None:
        """Take the lines of a stage, and write all files."""
        self.stages[stage] = lines
        (self._out / "table.md").write_text(self.text + "\n", encoding="utf-8")
        found = {name: [asdict(line) for line in several] for name, several in self.stages.items()}
        (self._out / "results.json").write_text(as_text(self._about, found), encoding="utf-8")


def as_text(about: dict[str, str], stages: dict[str, list[dict[str, Any]]]) -> str:
    """Return the results as JSON, with a line of text for each line of the table."""
    parts = [
        json.dumps(name) + ": [\n" + ",\n".join(map(json.dumps, lines)) + "]"
        for name, lines in stages.items()
    ]
    return f'{{"about": {json.dumps(about)}, "stages": {{\n' + ",\n".join(parts) + "}}\n"


def run_stage(name: str, task: Task, limit: float, log: IO[bytes]) -> list[Line]:
    """Run a stage in a process of its own; return its lines, of which the last one says if it failed."""
    command = [sys.executable, str(HERE / "stage.py"), name, "--work", str(task.work)]
    command += ["--attention", task.attention, *(["--dry"] if task.dry else [])]
    if task.prefill_attention is not None:
        command += ["--prefill-attention", task.prefill_attention]
    command += ["--batches", *map(str, task.batches)]
    log.write(f"\n===== {name}\n".encode())
    log.flush()
    process = subprocess.Popen(
        command, stdout=log, stderr=log, env=environment(task), cwd=ROOT, start_new_session=True
    )
    ended = f"ended with {{}}; see the log of {name}"
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        ended = f"ended at its limit of {limit:.0f} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with all that it has started
        process.wait()
    lines = task.lines(name)
    if process.returncode and not any(line.failed for line in lines):
        lines.append(Line(name, failed=True, note=ended.format(process.returncode)))
    return lines or [Line(name, failed=True, note="gave no line")]


def environment(task: Task) -> dict[str, str]:
    """Return the environment of stages: what the first one installs comes first, and nothing is compiled or fetched."""
    path = [str(task.work / "site"), str(ROOT / ".links"), os.environ.get("PYTHONPATH", "")]
    own = {
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    inherited = {
        name: value for name, value in os.environ.items() if name != COMMIT
    }  # `llmfw` would warn of it
    return {"FLASHINFER_DISABLE_JIT": "1"} | inherited | own


def parse_arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--dry", action="store_true", help="on a CPU, with a tiny model")
    add("--stages", nargs="+", choices=STAGES, default=list(STAGES), metavar="NAME", help=", ".join(STAGES))
    add("--attention", default="auto", metavar="NAME", help="attention backend to measure with")
    add("--prefill-attention", metavar="NAME", help="attention backend to measure prompts with")
    add("--batches", nargs="+", type=int, default=[], metavar="N", help="sequences that decode together")
    add("--total", type=float, default=TOTAL_S, metavar="SECONDS", help="most of all stages together")
    return parser.parse_args()


def main() -> None:
    """Run the stages, and print the table."""
    options = parse_arguments()
    out = Path(os.environ.get("OUT") or HERE / "results")
    about = {"date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", "commit": commit()}
    about["command"] = " ".join(sys.argv[1:])
    results = Results(out, about)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, (out / "log.txt").open("wb") as log:
        task = Task(
            *(options.dry, Path(folder), options.attention, tuple(options.batches)),
            prefill_attention=options.prefill_attention,
        )
        for name in (name for name in STAGES if name in options.stages):
            left = options.total - (time.monotonic() - begun)
            if left > 5:
                started = time.monotonic()
                results.add(name, run_stage(name, task, min(STAGES[name], left), log))
                print(f"{name}: {time.monotonic() - started:.1f} s", flush=True)
            else:
                results.add(name, [Line(name, failed=True, note="left out: no time was left")])
    print(f"\n{about['date']}, commit {about['commit']}\n\n{results.text}")
    sys.exit(results.failed)


def commit() -> str:
    """Return the commit that is measured: $LLMFW_COMMIT, else the checkout's; "unknown" in a copy without either."""
    if named := os.environ.get(COMMIT):
        return named
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
