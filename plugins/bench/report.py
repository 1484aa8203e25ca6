"""Figures of a workload's runs, as a dictionary for JSON and as a table. Knows nothing of how replies came about."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from rich import box
from rich.table import Table

from .reply import Reply
from .runner import Run

Figures = dict[str, Any]


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Return the percentile, interpolated linearly between neighbours as numpy does; None of no values."""
    if not values:
        return None
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def figures_of(run: Run) -> Figures:
    """Return one run's figures. Tokens and latencies are those of requests that did not fail.

    `output_tok_s` is output tokens (from usage) per second of the run's wall time. `ttft` is the time from sending a
    request to its first event with text, `itl` the time between one event with text and the next of a request.
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
        "failed": len(run.replies) - len(good),
        "short": sum((reply.output_tokens or 0) < reply.wanted for reply in good),
        "prompt_tokens": prompt,
        "output_tokens": output,
        "cached_tokens": sum(cached) if cached else None,
        "output_tok_s": round(output / run.wall, 2),
        "total_tok_s": round((output + prompt) / run.wall, 2),
        **_latencies("ttft", _first_times(good)),
        **_latencies("itl", gaps),
    }
    turns = 1 + max(reply.turn for reply in run.replies)
    if turns > 1:
        figures["ttft_p50_by_turn_ms"] = [
            _ms(percentile(_first_times(r for r in good if r.turn == turn), 50)) for turn in range(turns)
        ]
    if errors := [reply.error for reply in run.replies if reply.error is not None]:
        figures["first_error"] = errors[0]
    return figures


def _first_times(replies: Iterable[Reply]) -> list[float]:
    return [reply.times[0] - reply.started for reply in replies if reply.times]


def _latencies(name: str, seconds: list[float]) -> Figures:
    return {f"{name}_p{percent}_ms": _ms(percentile(seconds, percent)) for percent in (50, 99)}


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


def summarise(runs: list[Figures]) -> Figures:
    """Return the median of each figure over the runs; counts of failed and short requests are sums."""
    summary: Figures = {}
    for key in runs[0]:
        values = [run[key] for run in runs if run[key] is not None]
        if key in ("failed", "short"):
            summary[key] = sum(values)
        elif key == "seed" or isinstance(runs[0][key], list | str):
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


def table(results: list[Figures]) -> Table:
    """Return the results of several workloads as a table for a terminal."""
    found = Table(box=box.SIMPLE, title_justify="left")
    found.add_column("workload")
    for name in ("output tok/s", "lowest–highest", "TTFT ms p50 / p99", "ITL ms p50 / p99"):
        found.add_column(name, justify="right")
    for name in ("requests", "failed", "short", "prompt tok", "output tok", "cached tok", "wall s"):
        found.add_column(name, justify="right")
    for result in results:
        rates = [run["output_tok_s"] for run in result["runs"]]
        found.add_row(
            result["workload"],
            f"{result['output_tok_s']:.1f}",
            f"{min(rates):.1f}–{max(rates):.1f}",
            f"{_show(result['ttft_p50_ms'])} / {_show(result['ttft_p99_ms'])}",
            f"{_show(result['itl_p50_ms'])} / {_show(result['itl_p99_ms'])}",
            *(_show(result[k], 0) for k in ("requests", "failed", "short")),
            *(_show(result[k], 0) for k in ("prompt_tokens", "output_tokens", "cached_tokens")),
            f"{result['wall_s']:.2f}",
        )
    return found


def _show(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
