"""Metrics of a workload's runs, as a dictionary for JSON and as rows of a table."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from llmfw.core.terminal.tables import Cell, Column

from .objectives import Objectives, is_met
from .percentiles import latencies, milliseconds, percentile
from .reply import Reply
from .runner import Run
from .timeline import timeline_of

Figures = dict[str, Any]


def figures_of(run: Run, objectives: Objectives | None = None) -> Figures:
    """Return the metrics of one run. Token counts and latencies exclude failed requests.

    `output_tok_s` is output tokens (from usage) per second of the run's wall time. `ttft` (time to first
    token) is the time from sending a request to its first event with text. `itl` (inter-token latency) is the
    time between two consecutive events with text in one reply; `e2e` is the time from sending a request to
    its last byte. If requests were due at given times, the result includes a timeline and `late`, the delay
    between due time and sending. If there are objectives, the result includes `goodput_rps`, the requests per
    second that met all objectives.
    """
    good = [reply for reply in run.replies if reply.error is None]
    output = sum(reply.output_tokens or 0 for reply in good)
    prompt = sum(reply.prompt_tokens or 0 for reply in good)
    cached = [reply.cached_tokens for reply in good if reply.cached_tokens is not None]
    gaps = [b - a for reply in good for a, b in pairwise(reply.times)]
    figures: Figures = {
        "seed": run.seed,
        "wall_s": round(run.wall, 4),
        "requests": len(run.replies),
        "requests_s": round(len(good) / run.wall, 3),
        "failed": len(run.replies) - len(good),
        "short": sum((reply.output_tokens or 0) < reply.wanted for reply in good),
        "prompt_tokens": prompt,
        "output_tokens": output,
        "cached_tokens": sum(cached) if cached else None,
        "output_tok_s": round(output / run.wall, 2),
        "total_tok_s": round((output + prompt) / run.wall, 2),
        **latencies("ttft", _first_times(good)),
        **latencies("itl", gaps),
        **latencies("e2e", [reply.ended - reply.started for reply in good]),
    }
    if late := [reply.started - reply.due for reply in run.replies if reply.due is not None]:
        figures |= latencies("late", late) | {"timeline": timeline_of(run)}
    if objectives:
        met = sum(is_met(reply, objectives) for reply in run.replies)
        figures |= {"goodput_rps": round(met / run.wall, 3), "met_share": round(met / len(run.replies), 4)}
    turns = 1 + max(reply.turn for reply in run.replies)
    if turns > 1:
        figures["ttft_p50_by_turn_ms"] = [
            milliseconds(percentile(_first_times(r for r in good if r.turn == turn), 50))
            for turn in range(turns)
        ]
    if errors := [reply.error for reply in run.replies if reply.error is not None]:
        figures["first_error"] = errors[0]
    return figures


def _first_times(replies: Iterable[Reply]) -> list[float]:
    return [reply.times[0] - reply.started for reply in replies if reply.times]


def summarize(runs: list[Figures]) -> Figures:
    """Return the median of each metric over the runs that have it, and the sums of failed and short requests."""
    summary: Figures = {}
    for key in dict.fromkeys(key for run in runs for key in run):
        values = [value for run in runs if (value := run.get(key)) is not None]
        if key in ("failed", "short"):
            summary[key] = sum(values)
        elif values and isinstance(values[0], list | str):  # the seed, an error, or a list by turn or time
            continue
        elif not values:
            summary[key] = None
        else:
            median = statistics.median(values)
            summary[key] = (
                int(median) if float(median).is_integer() and isinstance(values[0], int) else median
            )
    errors = [run["first_error"] for run in runs if "first_error" in run]
    return summary | ({"first_error": errors[0]} if errors else {}) | {"runs": runs}


COLUMNS = (
    Column("workload"),
    Column("rate", right=True),
    Column("goodput", right=True),
    Column("req/s", drop=4, right=True),
    Column("output tok/s", right=True),
    Column("lowest", drop=3, right=True),
    Column("highest", drop=3, right=True),
    Column("TTFT p50 ms", right=True),
    Column("TTFT p99 ms", right=True),
    Column("ITL p50 ms", right=True),
    Column("ITL p99 ms", right=True),
    Column("requests", drop=4, right=True),
    Column("failed", right=True),
    Column("short", drop=2, right=True),
    Column("prompt tok", drop=6, right=True),
    Column("output tok", drop=5, right=True),
    Column("cached tok", drop=6, right=True),
    Column("wall s", drop=1, right=True),
)
"""Columns of the table; "lowest" and "highest" are output tokens/s of single runs; "rate", "goodput" and "req/s" are
requests a second."""


RATES = ("rate", "goodput_rps", "requests_s")


def rows(results: Iterable[Figures]) -> Iterator[tuple[Cell, ...]]:
    """Yield a row of `COLUMNS` for each workload."""
    for result in results:
        rates = [run["output_tok_s"] for run in result["runs"]]
        yield (
            result["workload"],
            *(None if (value := result.get(key)) is None else f"{value:g}" for key in RATES),
            *(f"{rate:.1f}" for rate in (result["output_tok_s"], min(rates), max(rates))),
            *(_show(result[f"{name}_p{percent}_ms"]) for name in ("ttft", "itl") for percent in (50, 99)),
            *(_count(result[key]) for key in ("requests", "failed", "short")),
            *(_count(result[key]) for key in ("prompt_tokens", "output_tokens", "cached_tokens")),
            f"{result['wall_s']:.2f}",
        )


def _show(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f}"


def _count(value: float | None) -> int | None:
    return None if value is None else round(value)
