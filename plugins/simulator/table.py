"""Several policies' figures as one table, and as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.table import Table

from .errors import SimulatorError
from .figures import Figures, Floats

COLUMNS = {
    "policy": "policy",
    "hit_rate": "hit rate",
    "ttft_p50_ms": "TTFT p50 ms",
    "ttft_p99_ms": "p99",
    "itl_p50_ms": "ITL p50 ms",
    "itl_p99_ms": "p99",
    "output_tok_s": "out tok/s",
    "retractions": "retracted",
    "longest_wait_s": "longest wait s",
    "most_overtaken": "overtaken",
    "fairness": "fairness",
    "refused": "refused",
}


def table(results: Sequence[Figures]) -> Table:
    """Return a row for each policy."""
    made = Table(box=box.SIMPLE_HEAD)
    for name, title in COLUMNS.items():
        made.add_column(title, justify="left" if name == "policy" else "right")
    for result in results:
        made.add_row(*(_text(result[name]) for name in COLUMNS))
    return made


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 10 else f"{value:,.1f}"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def check_plot() -> None:
    """Raise SimulatorError if nothing can be plotted: better before a long replay than after it."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise SimulatorError(
            "--plot needs matplotlib, which is not installed: pip install 'llmfw-engine[plot]'"
        ) from error


def plot(results: Sequence[Figures], waits: Mapping[str, Floats], path: Path) -> None:
    """Write a picture: times to the first token, as shares of requests; hit rates; output rates.

    Args:
        results: of each policy.
        waits: seconds to the first token of its requests, by policy.
        path: of the PNG.

    Raises:
        SimulatorError: the file cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4), layout="constrained")
    times, hits, rates = figure.subplots(1, 3, width_ratios=(2, 1, 1))
    for name, seconds in waits.items():
        times.step(np.sort(seconds), np.arange(1, len(seconds) + 1) / max(1, len(seconds)), label=name)
    times.set(xscale="log", xlabel="time to first token, s", ylabel="share of requests")
    times.legend()
    names = [result["policy"] for result in results]
    for axes, key, label in ((hits, "hit_rate", "hit rate"), (rates, "output_tok_s", "output tokens/s")):
        axes.bar(range(len(names)), [result[key] for result in results])
        axes.set_xticks(range(len(names)), names, rotation=20, ha="right")
        axes.set_ylabel(label)
    try:
        figure.savefig(path, format="png", dpi=120)
    except OSError as error:
        raise SimulatorError(f"--plot {path} cannot be written: {error.strerror}") from error
