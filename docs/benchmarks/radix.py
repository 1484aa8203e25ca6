"""What the radix cache costs: match, insert, split, lock and evict, and a round of longest prefix match.

    .venv/bin/python docs/benchmarks/radix.py --help

The same for SGLang's `RadixCache`, where an environment with it is named. The two take turns, each in a process of its
own (`radix_turn.py`); counted is the CPU time of the one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from tables import row, spread, write_between

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LENGTH, CUT = 512, 64

Costs = dict[str, list[float]]
"""By operation, microseconds in each turn."""


def main() -> None:
    """Measure, print the tables, and write them and the results where the options say."""
    options = parse_arguments()
    results: dict[str, dict[str, Costs]] = {}
    for turn in range(options.turns):
        for page_size in options.page_sizes:
            for name in ("llmfw", "SGLang") if options.sglang else ("llmfw",):
                print(f"turn {turn + 1}, page size {page_size}: {name}", file=sys.stderr, flush=True)
                costs = results.setdefault(str(page_size), {}).setdefault(name, {})
                for operation, us in measure(name, page_size, options).items():
                    costs.setdefault(operation, []).append(us)
    found = {"machine": machine(options), "page_sizes": results}
    text = tables(found)
    print(text)
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if options.page:
        write_between(options.page, "tables", text)


def parse_arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--page-sizes", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--waiting", type=int, nargs="+", default=[128, 1000, 5000])
    parser.add_argument("--sglang", type=Path, help="Python of an environment with SGLang's dependencies")
    parser.add_argument("--sglang-path", default="", help="PYTHONPATH on which `sglang` is found")
    parser.add_argument("--sglang-version", default="", help="to be told beside its figures")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    parser.add_argument("--page", type=Path, help="page between whose markers the tables are written")
    return parser.parse_args()


def measure(name: str, page_size: int, options: argparse.Namespace) -> dict[str, float]:
    """Return microseconds of each operation in one turn."""
    python, env = sys.executable, dict(os.environ, OMP_NUM_THREADS="1")
    if name == "SGLang":
        python = str(options.sglang)
        env |= {"PYTHONPATH": options.sglang_path, "SGLANG_USE_CPU_ENGINE": "1"}
    waiting = ",".join(map(str, options.waiting))
    command = [python, str(HERE / "radix_turn.py"), name, str(page_size), waiting]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{name} failed:\n{done.stderr[-4000:]}")
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return dict(json.loads(lines[-1]))


def machine(options: argparse.Namespace) -> dict[str, Any]:
    """Return on what was measured."""
    git = ["git", "-C", str(ROOT), "log", "-1", "--format=%cs %h"]
    date, _, commit = (
        subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip().partition(" ")
    )
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    cpu = next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine()
    )
    return {
        "date": date,
        "commit": commit,
        "cpu": cpu,
        "python": platform.python_version(),
        "turns": options.turns,
        "sglang": options.sglang_version,
    }


def tables(found: dict[str, Any]) -> str:
    """Return a line about the machine, and a table for each page size."""
    about = found["machine"]
    peer = f", SGLang {about['sglang']}" if about["sglang"] else ""
    where = f"{about['date']}, commit {about['commit']}, {about['cpu']}, Python {about['python']}{peer}."
    lines = [f"{where} Microseconds of CPU time, median (lowest–highest) of {about['turns']} turns."]
    for page_size, costs in found["page_sizes"].items():
        lines += ["", f"### Page size {page_size}", "", *table(costs)]
    return "\n".join(lines)


def table(costs: dict[str, Costs]) -> list[str]:
    """Return the lines of one table. SGLang's columns are there where it was measured."""
    ours, peer = costs["llmfw"], costs.get("SGLang")
    header = ["operation", "llmfw, µs", "a token, ns"] + (["SGLang, µs", "times as long"] if peer else [])
    lines = [row(header), row(["---"] * len(header))]
    for operation, values in ours.items():
        cells = [operation, spread(values), per_token(operation, statistics.median(values))]
        if peer:
            cells += [spread(peer[operation])]
            cells += [spread([b / a for a, b in zip(values, peer[operation], strict=True)])]
        lines.append(row(cells))
    return lines


def per_token(operation: str, us: float) -> str:
    """Return nanoseconds for each token that an operation of this name handles."""
    if "waiting" in operation:
        return "–"
    return f"{us * 1000 / (CUT if 'evict' in operation else LENGTH):.1f}"


if __name__ == "__main__":
    main()
