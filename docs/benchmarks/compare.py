"""Compare llmfw with `transformers serve` and continuous batching: same weights, machine, client and prompts.

    .venv/bin/python docs/benchmarks/compare.py --help

Both servers run; they are measured in turns, A B A B, never at the same time. A turn is one `llmfw bench` with one
run that counts, after its warm-up. Results go into a JSON file after each workload and, as tables, into a page.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from machine import describe_machine
from make_model import make_model
from servers import Server, llmfw, transformers_serve
from tables import split_page, write_tables
from turns import Turns

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WORK = ROOT / ".bench"
LLMFW = Path(sys.executable).parent / "llmfw"
MODELS = {"smollm2-135m-shape": WORK / "smollm2-135m-shape", "demo": ROOT / "plugins/model_demo/weights"}
Turned = Iterator[tuple[str, list[dict[str, Any]]]]
WORKLOADS = ["single", "batch16", "prefix", "burst", "multiturn"]


def main() -> None:
    """Measure all models and write what was found."""
    options = parse_arguments()
    if options.page:
        split_page(options.page)  # an hour of measuring is not to end in an error
    WORK.mkdir(exist_ok=True)
    (WORK / ".gitignore").write_text("*\n")
    servers = [llmfw(LLMFW), transformers_serve(options.peer)]
    results: dict[str, Any] = {
        "machine": describe_machine() | describe_versions(options.peer),
        "commands": {server.name: server.describe() for server in servers},
        "scale": options.scale,
        "models": {},
    }
    for model in options.models:
        folder = MODELS[model]
        if folder.parent == WORK and not (folder / "model.safetensors").exists():
            make_model(folder)
        results["models"][model] = {}
        for workload, turns in measure(servers, model, folder, options):
            results["models"][model][workload] = turns
            options.out.write_text(json.dumps(results, indent=1) + "\n")
    if options.page:
        write_tables(options.out, options.page)


def measure(servers: list[Server], model: str, folder: Path, options: argparse.Namespace) -> Turned:
    """Start the servers on a model, yield each workload with its turns, and stop them."""
    try:
        for server in servers:
            with (WORK / f"{server.name.replace(' ', '-')}.log").open("wb") as log:
                ready = server.start(folder, log)
            print(f"{model}: {server.name} ready after {ready:.1f} s", flush=True)
        turns = Turns(LLMFW, servers, folder, options.scale, options.foreign, options.wait)
        for workload in options.workloads:
            yield (
                workload,
                [turns.take(server, workload, run) for run in range(options.runs) for server in servers],
            )
    finally:
        for server in servers:
            server.stop()


def parse_arguments() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--peer", type=Path, default=ROOT / ".venv-bench/bin/transformers", help="the `transformers` command")
    add("--models", nargs="+", choices=MODELS, default=list(MODELS))
    add("--workloads", nargs="+", choices=WORKLOADS, default=WORKLOADS)
    add("--runs", type=int, default=3, help="runs of each server that count (default 3)")
    add("--scale", type=float, default=1.0, help="multiplies the number of requests (default 1)")
    add("--foreign", type=float, default=0.04, help="share of the CPU that others may use (default 0.04)")
    add("--wait", type=float, default=60.0, help="seconds to wait until they use less (default 60)")
    add("--out", type=Path, default=HERE / "cpu.json", help="results (default docs/benchmarks/cpu.json)")
    add("--page", type=Path, help="page whose tables are replaced, such as docs/benchmarks.md")
    return parser.parse_args()


def describe_versions(peer: Path) -> dict[str, Any]:
    """Return the versions of both sides."""
    script = "import torch, transformers; print(torch.__version__, transformers.__version__)"
    versions = subprocess.run(
        [peer.parent / "python", "-c", script], capture_output=True, text=True, check=True
    )
    return {
        "llmfw": {name: version(name) for name in ("llmfw-engine", "torch", "transformers")},
        "transformers serve": dict(zip(("torch", "transformers"), versions.stdout.split(), strict=True)),
    }


if __name__ == "__main__":
    main()
