"""What a token of one stream costs beside the native step, of the demo model on a CPU (Linux).

    .venv/bin/python docs/benchmarks/token_cost.py --page docs/benchmarks.md

First the engine alone: a step, what of it is not native code, and the same with a native step that does nothing, so that
the host's code and data stay in the core's caches. Then the server: CPU time and context switches of each process, a
token, while `llmfw bench` reads one stream after the other. The lowest tenth of many steps tells what the code takes on a
machine that others use, too; CPU time hardly depends on them.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from servers import Server
from tables import write_between

if TYPE_CHECKING:
    from llmfw.core.engine.generation.engine import Engine

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DEMO = ROOT / "plugins/model_demo/weights"
ROUNDS, STEPS = 8, 300


def main() -> None:
    """Measure, and print two tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10, help="of `llmfw bench --workload single`")
    parser.add_argument("--page", type=Path, help="page between whose markers the tables are written")
    parser.add_argument("--alone", nargs=2, type=int, metavar=("ROUNDS", "STEPS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        print(json.dumps(engine_alone(*options.alone)))
        return
    command = [sys.executable, __file__, "--alone", str(ROUNDS), str(STEPS)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    alone = json.loads(done.stdout.splitlines()[-1])
    text = table(alone, served(options.runs))
    print(text)
    if options.page:
        write_between(options.page, "token cost", text)


def engine_alone(rounds: int, num_steps: int) -> dict[str, float]:
    """Return microseconds of a step, of what of it is not native code, and of that with a native step of nothing.

    Args:
        rounds: how often one request is decoded with real steps, and one with steps of nothing.
        num_steps: of each request.
    """
    import torch

    from llmfw.core.base.config import EngineConfig
    from llmfw.core.engine.generation.build import build_generation_engine
    from llmfw.core.imports import garbage
    from llmfw.core.plugin.plugins import load_plugins
    from llmfw.plugins.cpu_native.library import load_library

    native: list[float] = []
    is_real = True
    library = load_library(torch.bfloat16)
    run = library.llmfw_run_model

    def timed(*arguments: Any) -> int:
        begun = time.perf_counter()
        status = run(*arguments) if is_real else _zeros(arguments[3])
        native.append(time.perf_counter() - begun)
        return int(status)

    vars(library)["llmfw_run_model"] = timed  # of the one library that this process has
    config = EngineConfig(model=str(DEMO), dtype="bfloat16", max_total_tokens=32_768, log_level="warning")
    engine = build_generation_engine(config, load_plugins().registry)
    torch.set_num_threads(1)  # as in the engine's process
    garbage.settle()
    found: dict[str, list[float]] = {"step": [], "beside": [], "nothing": []}
    for turn in range(rounds):
        for is_real in (True, False):
            native.clear()
            steps = decode(engine, f"{turn} {is_real}", num_steps)
            if is_real:
                found["step"] += steps
                found["beside"] += [whole - inner for whole, inner in zip(steps, native[1:], strict=True)]
            else:
                found["nothing"] += steps
    return {name: 1e6 * sorted(values)[len(values) // 10] for name, values in found.items()}


def _zeros(ends: Any) -> int:
    """Write zeros in place of a step's logits, whose memory may hold anything; return the native call's status."""
    ctypes.memset(ends._obj.logits, 0, ends._obj.num_ids * 4)  # of one row, in float32
    return 0


def decode(engine: Engine, request_id: str, num_steps: int) -> list[float]:
    """Return the seconds of each step of one request, but for that of its prompt."""
    from llmfw.core.base.request import Request, SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=num_steps, ignore_eos=True)
    engine.add(Request(id=request_id, prompt=list(range(300, 320)), sampling=sampling))
    seconds = []
    while engine.has_work:
        begun = time.perf_counter()
        engine.step()
        seconds.append(time.perf_counter() - begun)
    return seconds[1:]


def served(runs: int) -> dict[str, tuple[float, float]]:
    """Return microseconds of CPU and context switches of a token: of the API's process, and of the engine's."""
    command = [
        sys.executable,
        "-m",
        "llmfw.api",
        "serve",
        "{folder}",
        "--port",
        "{port}",
        "--dtype",
        "bfloat16",
    ]
    server = Server("llmfw", [*command, "--max-total-tokens", "32768", "--log-level", "warning"])
    with open("/dev/null", "wb") as log:
        server.start(DEMO, log)
    try:
        assert server.process is not None
        pids = {"API": server.process.pid, "engine": child_of(server.process.pid)}
        bench(server, 1)
        before = {name: used(pid) for name, pid in pids.items()}
        num_tokens = bench(server, runs)
        after = {name: used(pid) for name, pid in pids.items()}
    finally:
        server.stop()
    return {
        name: (
            1e6 * (after[name][0] - before[name][0]) / num_tokens,
            (after[name][1] - before[name][1]) / num_tokens,
        )
        for name in pids
    }


def bench(server: Server, runs: int) -> int:
    """Run `llmfw bench`; return how many tokens came, the wave that warms up included."""
    command = [sys.executable, "-m", "llmfw.api", "bench", "--base-url", server.url, "--json", "--seed", "7"]
    command += ["--workload", "single", "--prompt-mode", "ids", "--runs", str(runs)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result = json.loads(done.stdout.splitlines()[-1])
    return int(result["runs"][0]["output_tokens"] * (1 + len(result["runs"])))


def child_of(pid: int) -> int:
    """Return the process that this one has started: the engine's."""
    children = [(task / "children").read_text().split() for task in Path(f"/proc/{pid}/task").iterdir()]
    [found] = [int(child) for each in children for child in each]
    return found


def used(pid: int) -> tuple[float, int]:
    """Return the CPU seconds and the context switches of a process's threads so far."""
    seconds, switches = 0.0, 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        seconds += int((task / "schedstat").read_text().split()[0]) / 1e9
        lines = (task / "status").read_text().splitlines()
        switches += sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)
    return seconds, switches


def table(alone: dict[str, float], processes: dict[str, tuple[float, float]]) -> str:
    """Return both as Markdown."""
    rows = [
        ("a step of the engine alone", alone["step"], ""),
        ("of that, beside the native step", alone["beside"], ""),
        ("the same, where the native step does nothing", alone["nothing"], ""),
        *((f"over HTTP: the {name}'s process", cpu, f"{n:.1f}") for name, (cpu, n) in processes.items()),
    ]
    lines = [f"| {what} | {microseconds:.0f} | {switches} |" for what, microseconds, switches in rows]
    return "\n".join(["| a token of one stream | µs | context switches |", "|---|---|---|", *lines])


if __name__ == "__main__":
    main()
