"""One call of `llmfw bench`: measures a server, prints the results, and writes them to files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec

from llmfw.core.terminal.tables import print_table

from . import comparison, report
from .errors import BenchError
from .load import ClosedLoad, Load, RateLoad, TraceLoad
from .objectives import parse_objectives
from .plot import check_plot, plot
from .report import Figures
from .results_file import check_output, read_results, write_results
from .session import Settings, check_failures, measure
from .trace_load import TraceFile
from .workloads import ALL, WORKLOADS

DURATION_S = 60.0


@dataclass(frozen=True)
class Files:
    """The files of a call; see the help texts of these options in command.py."""

    output: Path | None
    results: Path | None
    baseline: Path | None
    plot: Path | None


def call(files: Files, options: dict[str, Any]) -> None:
    """Measure, or read results; print them, and write the files.

    Args:
        options: the other options by their names.

    Raises:
        BenchError: nothing could be measured, a file cannot be used, or requests failed (raised last).
    """
    if files.baseline and options["as_json"]:
        raise BenchError("--json prints results, not a comparison: leave it or --baseline out")
    if files.plot:
        check_plot(files.plot)
    before = read_results(files.baseline, "--baseline") if files.baseline else None
    if files.results:
        results = read_results(files.results, "--results")
    else:
        if files.output:
            check_output(files.output)
        results = measure(_settings(**options))
        if files.output:
            write_results(files.output, results)
    if not options["as_json"]:
        _show(results, before)
    elif files.results:
        for result in results:
            click.echo(msgspec.json.encode(result))
    if files.plot:
        plot(results, files.plot)
    if not files.results:
        check_failures(results)


def _show(results: list[Figures], before: list[Figures] | None) -> None:
    if before is None:
        print_table(report.COLUMNS, report.rows(results))
    else:
        print_table(comparison.COLUMNS, comparison.rows(before, results))


def _settings(
    *,
    workload: str,
    rates: tuple[float, ...],
    duration: float | None,
    trace: Path | None,
    block_size: int,
    objectives: tuple[str, ...],
    runs: int | None,
    scale: float,
    **others: Any,
) -> Settings:
    is_open = bool(rates) or trace is not None
    if duration is not None and not is_open:
        raise BenchError(
            "--duration needs --rate or --trace; without them, --scale says how many requests are sent"
        )
    if is_open and scale != 1.0:
        raise BenchError("--scale is for a fixed number of requests; with --rate or --trace, give --duration")
    loads: list[Load]
    if trace is not None:
        if workload != ALL:
            raise BenchError("--trace and --workload exclude each other: the trace says what is sent")
        file = TraceFile(trace, block_size)
        loads = [TraceLoad(file, rate, duration) for rate in rates or (None,)]
    else:
        if workload != ALL and workload not in WORKLOADS:
            raise BenchError(f"unknown workload {workload!r}; known: {', '.join([*WORKLOADS, ALL])}")
        chosen = list(WORKLOADS.values()) if workload == ALL else [WORKLOADS[workload]]
        if rates:
            loads = [RateLoad(each, rate, duration or DURATION_S) for each in chosen for rate in rates]
        else:
            loads = [ClosedLoad(each.scaled(scale)) for each in chosen]
    return Settings(
        loads=loads,
        objectives=parse_objectives(objectives),
        runs=runs or (1 if is_open else 3),
        scale=scale,
        **others,
    )
