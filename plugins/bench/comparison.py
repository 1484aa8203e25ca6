"""Compares results with the results in a file, load by load."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from llmfw.core.terminal.tables import Cell, Column

from .report import Figures

COMPARED = (
    "output_tok_s",
    "requests_s",
    "goodput_rps",
    "ttft_p50_ms",
    "ttft_p99_ms",
    "itl_p50_ms",
    "itl_p99_ms",
    "e2e_p50_ms",
    "e2e_p99_ms",
)
COLUMNS = (
    Column("workload"),
    Column("rate", right=True),
    Column("metric"),
    Column("before", right=True),
    Column("now", right=True),
    Column("ratio", right=True),
    Column("runs before", right=True, drop=1),
    Column("runs now", right=True, drop=1),
)
"""Columns of the table; "runs" are the lowest and highest values of single runs."""


def rows(before: Iterable[Figures], now: Iterable[Figures]) -> Iterator[tuple[Cell, ...]]:
    """Yield a row of `COLUMNS` for each metric of each load that both results contain.

    A load is a workload and a rate. A load that only one of the results contains has one row that says so.
    """
    earlier = {_key(result): result for result in before}
    for result in now:
        old = earlier.pop(_key(result), None)
        if old is None:
            yield (*_named(result), "only now", *[None] * 5)
            continue
        for metric in COMPARED:
            a, b = old.get(metric), result.get(metric)
            if a is None or b is None:
                continue
            ratio = f"{b / a:.3f}" if a else None
            yield (
                *_named(result),
                metric,
                f"{a:.2f}",
                f"{b:.2f}",
                ratio,
                _spread(old, metric),
                _spread(result, metric),
            )
    for old in earlier.values():
        yield (*_named(old), "only before", *[None] * 5)


def _key(result: Figures) -> tuple[str, float | None]:
    return result["workload"], result.get("rate")


def _named(result: Figures) -> tuple[Cell, Cell]:
    rate = result.get("rate")
    return result["workload"], None if rate is None else f"{rate:g}"


def _spread(result: Figures, metric: str) -> str | None:
    values = [run[metric] for run in result["runs"] if run.get(metric) is not None]
    return f"{min(values):.2f}–{max(values):.2f}" if len(values) > 1 else None
