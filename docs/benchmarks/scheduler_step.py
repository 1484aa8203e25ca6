"""What a step costs the scheduler, without a model: CPU time of planning one, and of taking its tokens.

    .venv/bin/python docs/benchmarks/scheduler_step.py --out docs/benchmarks/scheduler_step.json --page docs/benchmarks.md

So many sequences decode and none comes or ends: what is measured is the price of what did not change, and of one token
for each. CPU time of one thread, so that what else runs on the machine counts as little as possible.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from pathlib import Path

from tables import write_between

from llmfw.core.base.request import Request, SamplingParams
from llmfw.core.base.step import StepOutput
from llmfw.core.schedule.cache.kv_pool import KVPool
from llmfw.core.schedule.cache.radix_cache import RadixCache
from llmfw.core.schedule.new_token_ratio import NewTokenRatio
from llmfw.core.schedule.scheduler import Scheduler
from llmfw.core.schedule.sequence_pages import SequencePages
from llmfw.plugins.policies.lpm import LPM

PROMPT, OUTPUT = 100, 1000


def main() -> None:
    """Measure all sizes in turns, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--running", type=int, nargs="+", default=[256, 1000, 4000])
    parser.add_argument("--page-size", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    cases = [(num, size) for num in options.running for size in options.page_size]
    turns = [
        {"running": num, "page_size": size, **measure(num, size, options.steps)}
        for _ in range(options.turns)
        for num, size in cases
    ]
    table = as_table(turns)
    print(table)
    if options.out:
        options.out.write_text(json.dumps(turns, indent=1) + "\n")
    if options.page:
        write_between(options.page, "scheduler step", table)


def measure(num_running: int, page_size: int, num_steps: int) -> dict[str, float]:
    """Return the median milliseconds of CPU of planning a step and of taking its tokens."""
    pool = KVPool(num_running * (PROMPT + OUTPUT + page_size) // page_size, page_size)
    pages = SequencePages(pool, RadixCache(pool), num_running, PROMPT + OUTPUT + page_size)
    scheduler = Scheduler(
        pages, LPM(LPM.Options()), NewTokenRatio(0.1), max_running=num_running, prefill_budget=1 << 30
    )
    for i in range(num_running):
        prompt = [i] + [1] * (PROMPT - 1)
        scheduler.add(Request(id=str(i), prompt=prompt, sampling=SamplingParams(max_tokens=OUTPUT)))
    gc.collect()
    planning, taking = [], []
    for _ in range(num_steps):
        begun = time.thread_time()
        plan = scheduler.schedule()
        planned = time.thread_time()
        result = StepOutput([7] * len(plan.sequences))
        launched = time.thread_time()
        scheduler.commit(plan, result)
        planning.append(1000 * (planned - begun))
        taking.append(1000 * (time.thread_time() - launched))
    assert scheduler.num_running == num_running
    return {"plan_ms": statistics.median(planning[5:]), "commit_ms": statistics.median(taking[5:])}


def as_table(turns: list[dict[str, float]]) -> str:
    """Return medians of the turns, with their spread, as Markdown."""
    lines = ["| running | page size | planning, ms | taking tokens, ms | both, ms |", "|---|---|---|---|---|"]
    for num, size in dict.fromkeys((turn["running"], turn["page_size"]) for turn in turns):
        own = [turn for turn in turns if (turn["running"], turn["page_size"]) == (num, size)]
        columns = (
            [turn["plan_ms"] for turn in own],
            [turn["commit_ms"] for turn in own],
            [turn["plan_ms"] + turn["commit_ms"] for turn in own],
        )
        cells = (f"{statistics.median(c):.2f} ({min(c):.2f} to {max(c):.2f})" for c in columns)
        lines.append(f"| {num:,} | {size} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
