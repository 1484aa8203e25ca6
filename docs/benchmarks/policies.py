"""What policies make of a real trace, by simulation: hit rates against the bounds, waits, fairness.

    .venv/bin/python docs/benchmarks/policies.py TRACE [--page docs/benchmarks.md]

TRACE is Mooncake's conversation trace, or another in its format. Needs no GPU: steps cost what the profile 8b-h200
says. Replays run beside each other in as many processes as there are cores; the figures do not depend on that.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

from tables import write_between

from llmfw.plugins.simulator.bounds import infinite_hit_rate, lru_hit_rate
from llmfw.plugins.simulator.trace import read_trace

HERE = Path(__file__).resolve().parent
POLICIES = {"fcfs": "fcfs", "lpm, no aging": "lpm:max_overtaken=0", "lpm": "lpm"}
KV_TOKENS = (800_000, 3_000_000)
SPEEDS = (1, 2)
PROFILE = "8b-h200"
LRU_TOKENS = (800_000, 3_000_000, 10_000_000, 30_000_000)
COLUMNS = {
    "hit_rate": "hit rate",
    "ttft_p50_ms": "TTFT p50, s",
    "ttft_p99_ms": "TTFT p99, s",
    "itl_p99_ms": "time between tokens p99, ms",
    "longest_wait_s": "longest wait, s",
    "most_overtaken": "overtaken at most",
    "output_tok_s": "output tok/s",
    "fairness": "fairness",
    "retractions": "retractions",
}


def main() -> None:
    """Replay, write the results, and the tables if there is a page for them."""
    options = parse_arguments()
    trace = read_trace(options.trace, limit=options.limit)
    results = {
        "trace": options.trace.name,
        "requests": len(trace),
        "profile": PROFILE,
        "infinite_hit_rate": infinite_hit_rate(trace),
        "lru_hit_rates": {str(tokens): lru_hit_rate(trace, tokens) for tokens in LRU_TOKENS},
        "replays": replays(options),
    }
    options.out.write_text(json.dumps(results, indent=1) + "\n")
    text = tables(results)
    print(text)
    if options.page:
        write_between(options.page, "policies", text)


def parse_arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trace", type=Path)
    parser.add_argument("--limit", type=int, help="only the first so many requests, to try things out")
    parser.add_argument("--out", type=Path, default=HERE / "policies.json")
    parser.add_argument("--page", type=Path, help="page whose tables are written anew")
    return parser.parse_args()


def replays(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the figures of each policy, size of the storage and speed."""
    cases = list(product(KV_TOKENS, SPEEDS, POLICIES))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda case: replay(options, *case), cases))


def replay(options: argparse.Namespace, kv_tokens: int, speed: int, policy: str) -> dict[str, Any]:
    """Run `llmfw simulate` in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "llmfw.api",
        "simulate",
        str(options.trace),
        "--json",
        "--profile",
        PROFILE,
    ]
    command += ["--policy", POLICIES[policy], "--max-total-tokens", str(kv_tokens), "--speed", str(speed)]
    command += ["--limit", str(options.limit)] if options.limit else []
    shown = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    print(f"{policy}, {kv_tokens:,} tokens, speed {speed}: done", file=sys.stderr, flush=True)
    return json.loads(shown.stdout) | {"policy": policy, "spelled": POLICIES[policy]}


def tables(results: dict[str, Any]) -> str:
    """Return the bounds and the replays as Markdown."""
    lines = [
        f"{results['trace']}, {results['requests']:,} requests, profile {results['profile']}.",
        "",
        "| cache, prompts one after the other | hit rate |",
        "|---|---|",
        *(f"| LRU of {int(n):,} tokens | {rate:.3f} |" for n, rate in results["lru_hit_rates"].items()),
        f"| infinite | {results['infinite_hit_rate']:.3f} |",
    ]
    for kv_tokens, speed in product(KV_TOKENS, SPEEDS):
        lines += ["", f"{kv_tokens:,} tokens of KV storage, speed {speed}:", ""]
        lines += [f"| policy | {' | '.join(COLUMNS.values())} |", "|---" * (1 + len(COLUMNS)) + "|"]
        for each in results["replays"]:
            if (each["settings"]["kv_tokens"], each["settings"]["speed"]) == (kv_tokens, speed):
                lines.append(f"| {each['policy']} | {' | '.join(cell(each, name) for name in COLUMNS)} |")
    return "\n".join(lines)


def cell(figures: dict[str, Any], name: str) -> str:
    """Return a figure as the tables have it."""
    value = figures[name]
    if name.startswith("ttft"):
        return f"{value / 1e3:,.2f}"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.3f}" if name in ("hit_rate", "fairness") else f"{value:,.1f}"


if __name__ == "__main__":
    main()
