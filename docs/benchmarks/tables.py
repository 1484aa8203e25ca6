"""Results of a comparison as Markdown tables, and the page that holds them."""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
OURS, PEER = "llmfw", "transformers serve"


def split_page(page: Path, name: str = "tables") -> tuple[str, str]:
    """Return what stands up to the beginning of what a script writes on a page, and what stands from its end on.

    Raises:
        ValueError: the page lacks a marker of that name.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    head, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, closed, tail = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{page} has no {begin} … {end}")
    return head + begin, end + tail


def write_between(page: Path, name: str, text: str) -> None:
    """Replace what stands between the markers of a name on a page.

    Raises:
        ValueError: as `split_page`.
    """
    head, tail = split_page(page, name)
    page.write_text(f"{head}\n{text}\n{tail}", encoding="utf-8")


def write_tables(data: Path, page: Path) -> None:
    """Replace what stands between the page's markers by the results in the JSON file `data`.

    Raises:
        ValueError: as `split_page`.
    """
    split_page(page)
    link = os.path.relpath(data.resolve(), page.resolve().parent)
    text = tables(json.loads(data.read_text(encoding="utf-8")))
    text += f"\n\nEvery turn, with its share of the CPU: [{data.name}]({link})."
    write_between(page, "tables", text)


def tables(results: dict[str, Any]) -> str:
    """Return the machine in one line and a table for each model."""
    machine = results["machine"]
    ours, peer = (machine[name] for name in (OURS, PEER))
    described = (
        f"{machine['date']}, commit {machine['commit'] or 'unknown'}, {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_gib']} GiB, Python {machine['python']}; llmfw with torch {ours['torch']} and "
        f"transformers {ours['transformers']}; transformers serve {peer['transformers']} with torch {peer['torch']}."
    )
    lines = [described]
    if results["scale"] != 1:
        lines.append(
            f"\nWith {results['scale']} times the number of requests: not to be compared with other runs."
        )
    for model, workloads in results["models"].items():
        lines += ["", f"### {model}", "", *model_table(workloads)]
    return "\n".join(lines)


HEADER = (
    "workload",
    "llmfw, output tok/s",
    "transformers serve",
    "times as fast",
    "TTFT p50 / p99, ms: llmfw",
    "transformers serve",
    "ITL p50 / p99, ms: llmfw",
    "transformers serve",
    "foreign CPU",
)


def model_table(workloads: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Return the lines of one model's table, and a line for each server that failed or shortened requests."""
    lines = [row(HEADER), row(["---"] * len(HEADER))]
    notes = []
    for workload, turns in workloads.items():
        ours, peer = ([turn for turn in turns if turn["server"] == name] for name in (OURS, PEER))
        pairs = zip(ours, peer, strict=True)
        cells = [
            workload,
            spread([turn["output_tok_s"] for turn in ours]),
            spread([turn["output_tok_s"] for turn in peer]),
            spread([a["output_tok_s"] / b["output_tok_s"] for a, b in pairs if b["output_tok_s"]], digits=2),
            *(latency(side, kind) for kind in ("ttft", "itl") for side in (ours, peer)),
            f"{max(turn['foreign_cpu'] for turn in turns):.1%}",
        ]
        lines.append(row(cells))
        notes += [note for name, side in ((OURS, ours), (PEER, peer)) for note in flaws(workload, name, side)]
    return lines + (["", *notes] if notes else [])


def row(cells: Iterable[str]) -> str:
    """Return one line of a table."""
    return f"| {' | '.join(cells)} |"


def flaws(workload: str, name: str, turns: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a line if requests failed or ended before the wanted length: the figures then mean something else."""
    requests, failed, short = (
        sum(turn[count] for turn in turns) for count in ("requests", "failed", "short")
    )
    if failed or short:
        yield f"- {workload}, {name}: of {requests} requests {failed} failed and {short} ended early."


def spread(values: list[float], digits: int = 1) -> str:
    """Return median, lowest and highest."""
    if not values:
        return "–"
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def latency(turns: list[dict[str, Any]], kind: str) -> str:
    """Return the medians, over the turns, of two percentiles in milliseconds."""
    shown = []
    for percent in (50, 99):
        values = [
            turn[f"{kind}_p{percent}_ms"] for turn in turns if turn[f"{kind}_p{percent}_ms"] is not None
        ]
        shown.append(f"{statistics.median(values):.1f}" if values else "–")
    return " / ".join(shown)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: tables.py RESULTS.json PAGE.md")
    write_tables(Path(sys.argv[1]), Path(sys.argv[2]))
