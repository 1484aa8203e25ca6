"""Draws the latencies of runs over time, and over the rates of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .errors import BenchError
from .report import Figures

LATENCIES = ("ttft_p50_ms", "ttft_p99_ms", "itl_p50_ms", "itl_p99_ms")


def check_plot(path: Path) -> None:
    """Raise BenchError if matplotlib is missing or cannot write this format. Call this before a long run."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BenchError(
            "--plot needs matplotlib, which is not installed: pip install 'llmfw-engine[plot]'"
        ) from error
    known = Figure().canvas.get_supported_filetypes()
    if path.suffix.removeprefix(".") not in known:
        raise BenchError(f"--plot {path}: the name must end with a format, such as .svg or .png")


def plot(results: Sequence[Figures], path: Path) -> None:
    """Draw the last run of each load that has a timeline: one row of three diagrams per load.

    From left to right, they show the time to first token, the time between tokens, and output tokens per
    second, over the seconds of the run.

    Raises:
        BenchError: no result has a timeline; or the file cannot be written.
    """
    from matplotlib.figure import Figure

    timed = [
        (result, result["runs"][-1]["timeline"]) for result in results if "timeline" in result["runs"][-1]
    ]
    if not timed:
        raise BenchError("--plot draws runs with --rate or --trace; these results have none")
    figure = Figure(figsize=(14, 3.6 * len(timed)), layout="constrained")
    grid: Any = figure.subplots(len(timed), 3, squeeze=False)
    for (result, timeline), (first, gaps, flow) in zip(timed, grid, strict=True):
        seconds = [piece["from_s"] for piece in timeline]
        for diagram, name, title in (
            (first, "ttft", "time to first token"),
            (gaps, "itl", "time between tokens"),
        ):
            for percent in (50, 99):
                values = [piece[f"{name}_p{percent}_ms"] for piece in timeline]
                drawn = [float("nan") if v is None else v for v in values]
                diagram.plot(seconds, drawn, marker=".", label=f"p{percent}")
            diagram.set(title=title, ylabel="ms", xlabel="s")
            diagram.set_ylim(bottom=0)
            diagram.legend()
        flow.plot(seconds, [piece["output_tok_s"] for piece in timeline], label="output tokens/s")
        flow.set(title="output tokens a second", xlabel="s")
        rate = result.get("rate")
        first.set_title(
            f"{result['workload']}{'' if rate is None else f' at {rate:g}/s'}: {first.get_title()}"
        )
    try:
        figure.savefig(path)
    except OSError as error:
        raise BenchError(f"--plot {path} cannot be written: {error.strerror}") from error
