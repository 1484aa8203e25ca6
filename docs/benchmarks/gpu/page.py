"""Writes the results of docs/benchmarks/gpu.md from the runs that are kept in `data`.

    python docs/benchmarks/gpu/page.py

Each run is the results.json of one call of `run.py`. Needs nothing but the standard library.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from lines import Line, line_of, table

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "gpu.md"
sys.path.append(str(HERE.parent))
from tables import write_between


class Shown(NamedTuple):
    """What the page shows of a run.

    Attributes:
        heading: of its table.
        data: name of its file in `data`.
        stages: whose lines are shown.
        begins: beginnings of the cases that are shown; empty: all.
    """

    heading: str
    data: str
    stages: tuple[str, ...]
    begins: tuple[str, ...] = ()


RUNS = (
    Shown(
        "The whole: Triton for single tokens, FlashInfer's fa3 for prompts",
        "2026-11-27-3ba0b01e",
        ("machine", "ceilings", "decode", "server", "peer_minisgl", "tests", "peer_transformers"),
    ),
    Shown(
        "Decoding with FlashInfer, before kernels overlapped and tokens were drawn by Triton",
        "2026-11-27-9c28801b",
        ("decode",),
    ),
    Shown("Attention alone, by backend", "2026-11-27-4fec6c34-attention", ("attention",), ("attention",)),
    Shown("Products of one to eight rows, torch's and ours", "2026-11-27-9c28801b", ("linear",)),
    Shown("Products of 32 and 104 rows, torch's and ours", "2026-11-27-6a0f0c14", ("linear",)),
    Shown("Choosing tokens alone", "2026-11-27-9c28801b", ("sampling_kernels",)),
)

PROFILES = (
    ("1 sequence, a step", "2026-11-27-4fec6c34-triton", "decode 1, GPU idle"),
    ("100 sequences, a step", "2026-11-27-3ba0b01e", "decode 100, GPU idle"),
    ("500 sequences, a step", "2026-11-27-3ba0b01e", "decode 500, GPU idle"),
    ("prompt of 8192", "2026-11-27-3ba0b01e", "prefill 1 × 8192"),
    ("500 prompts of 30", "2026-11-27-3ba0b01e", "prefill 500 × 30"),
)
"""Of which lines the page says where the time went: a name, the run, and how the line's case begins."""

GROUPS = {
    "products": ("nvjet", "linear_kernel", "splitKreduce", "gemm"),
    "attention": ("attend_kernel", "join_kernel", "flashinfer", "prefill_kernel", "write_kernel"),
    "norms, activations, rotation": ("rms_norm", "silu_mul", "rope_kernel"),
}
"""Parts of kernels' names, by group."""


def read(name: str) -> dict[str, Any]:
    """Return a run's results."""
    results: dict[str, Any] = json.loads((HERE / "data" / f"{name}.json").read_text(encoding="utf-8"))
    return results


def results() -> str:
    """Return the text between the page's markers."""
    parts = ["### Where the time goes", "", profile(), ""]
    for shown in RUNS:
        run = read(shown.data)
        about = run["about"]
        parts += [f"### {shown.heading}", ""]
        parts += [
            f"{about['date']}, commit {about['commit']}; [all figures](gpu/data/{shown.data}.json).",
            "",
        ]
        parts += [table(lines_of(run, shown)), ""]
    return "\n".join(parts).rstrip()


def lines_of(run: Mapping[str, Any], shown: Shown) -> list[Line]:
    """Return the lines of a run that the page shows."""
    lines = [line_of(record) for stage in shown.stages for record in run["stages"].get(stage, ())]
    return [line for line in lines if not shown.begins or line.case.startswith(shown.begins)]


def profile() -> str:
    """Return a table of what the kernels of some lines take, in milliseconds, by group."""
    header = ("", *GROUPS, "rest", "together")
    rows: list[Iterable[str]] = [header, ["---"] * len(header)]
    for name, data, begin in PROFILES:
        found = [
            record for line in read(data)["stages"]["decode"] if (record := line)["case"].startswith(begin)
        ]
        detail = found[0]["detail"]
        steps = detail.get("steps", 1)
        spent = by_group(detail["kernels_s"])
        whole = sum(spent.values())
        cells = [
            f"{1000 * each / steps:.2f}"
            for each in (*(spent[group] for group in GROUPS), spent["rest"], whole)
        ]
        rows.append([name, *cells])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def by_group(kernels: Mapping[str, float]) -> Counter[str]:
    """Return the seconds of each group of kernels; "rest": those of no group."""
    spent: Counter[str] = Counter()
    for name, seconds in kernels.items():
        group = next(
            (group for group, parts in GROUPS.items() if any(part in name for part in parts)), "rest"
        )
        spent[group] += seconds
    return spent


if __name__ == "__main__":
    write_between(PAGE, "gpu", results())
