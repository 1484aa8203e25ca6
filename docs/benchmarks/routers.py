"""How long prompts wait under llmfw's routers and two others', near the capacity of several engines, by simulation.

    .venv/bin/python docs/benchmarks/routers.py TRACE [--page docs/benchmarks.md]

TRACE is Mooncake's conversation trace, or another in its format; the second workload is `chats_trace.py`. All routers
are judged by the same replay, which `llmfw simulate` uses; needs no GPU. Both workloads are replayed faster with more
engines: the requests per second and engine stay the same.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from chats_trace import chats
from rival_routers import CacheAware, GuessingDispatcher, RayPrefix
from tables import write_between

from llmfw.core import Router, load_plugins
from llmfw.core.client.replicas.dispatcher import Dispatcher
from llmfw.core.client.replicas.isolated_router import IsolatedRouter, build_router
from llmfw.plugins.simulator.figures import Figures, figures_of
from llmfw.plugins.simulator.policies import policy_maker
from llmfw.plugins.simulator.profile import Profile
from llmfw.plugins.simulator.profiles import named_profile
from llmfw.plugins.simulator.replay import replay
from llmfw.plugins.simulator.replica import EngineSettings
from llmfw.plugins.simulator.trace import TraceRequest, read_trace

HERE = Path(__file__).resolve().parent
LARGE = named_profile("8b-h200")
CARD = Profile(
    name="small card",
    about="12,000 prompt tokens a second, and 50 steps a second while sequences decode",
    host=1e-3,
    points=[(0, 0.02), (64, 0.02), (8192, 0.68)],
    per_context=2e-8,
    overlap=True,
)
ENGINE = EngineSettings(kv_tokens=800_000, page_size=16, max_running=512, chunk=8192)
SMALL = EngineSettings(kv_tokens=150_000, page_size=16, max_running=512, chunk=8192)
COUNTS = (4, 16, 64)
RIVALS: dict[str, type[Router]] = {"cache_aware": CacheAware, "Ray's prefix rule": RayPrefix}
ROUTERS = ("prefix", *RIVALS)
CONVERSATIONS, CHATS = "conversation trace", "multi-turn chats"


@dataclass(frozen=True)
class Case:
    """One replay.

    Attributes:
        workload: CONVERSATIONS or CHATS.
        load: requests per second, as a multiple of the trace's, or new conversations per second; for one engine.
    """

    workload: str
    load: float
    num_engines: int
    router: str


def main() -> None:
    """Replay, write the results, and the tables if there is a page for them."""
    options = parse_arguments()
    cases = [
        Case(workload, load, count, router)
        for (workload, loads), count, router in product(
            ((CONVERSATIONS, options.speeds), (CHATS, options.chats)), options.counts, options.routers
        )
        for load in loads
    ]
    results = []
    with ProcessPoolExecutor(options.processes) as pool:
        for done in as_completed([pool.submit(run, case, options) for case in cases]):
            results.append(done.result())
            print(json.dumps(results[-1]), file=sys.stderr, flush=True)
    order = {tuple(vars(case).values()): place for place, case in enumerate(cases)}
    results.sort(key=lambda each: order[tuple(each[name] for name in vars(cases[0]))])
    options.out.write_text(json.dumps({"replays": results}, indent=1) + "\n")
    text = tables(results)
    print(text)
    if options.page:
        write_between(options.page, "routers", text)


def parse_arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trace", type=Path)
    parser.add_argument(
        "--limit", type=int, default=2500, help="only the first so many requests of the trace"
    )
    parser.add_argument("--num-chats", type=int, default=75, help="conversations for each engine")
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS)
    parser.add_argument("--routers", nargs="+", default=ROUTERS)
    parser.add_argument("--speeds", type=float, nargs="*", default=(0.4, 0.45))
    parser.add_argument("--chats", type=float, nargs="*", default=(2.5,))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=HERE / "routers.json")
    parser.add_argument("--page", type=Path, help="page whose tables are written anew")
    return parser.parse_args()


def run(case: Case, options: argparse.Namespace) -> Figures:
    """Return the figures of a case."""
    registry = load_plugins().registry
    if case.workload == CONVERSATIONS:
        trace, settings, profile = read_trace(options.trace, limit=options.limit), ENGINE, LARGE
        speed = case.load * case.num_engines
    else:
        trace, settings, profile, speed = chats_of(case, options.num_chats), SMALL, CARD, 1.0
    if case.router in RIVALS:
        kind = RIVALS[case.router]
        router, dispatcher = IsolatedRouter(kind(kind.Options())), GuessingDispatcher
    else:
        router, dispatcher = build_router(registry, case.router, {}), Dispatcher
    make_policy = policy_maker("lpm", {}, registry)
    policies = [make_policy() for _ in range(case.num_engines)]
    ledger = replay(trace, settings, profile, policies, router=router, dispatcher=dispatcher, speed=speed)
    assert router.failure is None, router.failure
    figures = figures_of(ledger, trace, profile, settings.chunk)
    return {**vars(case), **figures}


def chats_of(case: Case, num_chats: int) -> list[TraceRequest]:
    """Return the multi-turn workload for a number of engines."""
    import tempfile

    per_s = case.load * case.num_engines
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chats.jsonl"
        lines = chats(per_s, num_chats / case.load, seed=0)
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return read_trace(path)


def tables(results: list[Figures]) -> str:
    """Return a Markdown table for each workload."""
    lines: list[str] = []
    for workload in (CONVERSATIONS, CHATS):
        mine = [each for each in results if each["workload"] == workload]
        routers = list(dict.fromkeys(each["router"] for each in mine))
        lines += [
            "",
            f"{workload.capitalize()}: 95th percentile of the time to first token in seconds, and hit rate.",
            "",
            f"| engines | load of one | {' | '.join(routers)} |",
            "|---" * (2 + len(routers)) + "|",
        ]
        for count, load in dict.fromkeys((each["num_engines"], each["load"]) for each in mine):
            row: dict[str, Any] = {
                each["router"]: f"{each['ttft_p95_ms'] / 1e3:,.2f} ({each['hit_rate']:.2f})"
                for each in mine
                if (each["num_engines"], each["load"]) == (count, load)
            }
            lines.append(f"| {count} | {load:g} | {' | '.join(row.get(each, '') for each in routers)} |")
    return "\n".join(lines[1:])


if __name__ == "__main__":
    main()
