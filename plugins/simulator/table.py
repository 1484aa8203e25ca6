"""The metrics of several policies, as a table and as a plot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from llmfw.core.terminal.tables import Cell, Column

from .errors import SimulatorError
from .figures import Figures, Floats

COLUMNS = {
    "policy": Column("policy"),
    "router": Column("router"),
    "replicas": Column("replicas", right=True),
    "hit_rate": Column("hit rate", right=True),
    "ttft_p50_ms": Column("TTFT p50 ms", right=True),
    "ttft_p95_ms": Column("TTFT p95 ms", right=True),
    "ttft_p99_ms": Column("TTFT p99 ms", drop=7, right=True),
    "itl_p50_ms": Column("ITL p50 ms", drop=1, right=True),
    "itl_p99_ms": Column("ITL p99 ms", drop=1, right=True),
    "output_tok_s": Column("output tok/s", right=True),
    "retractions": Column("retracted", drop=5, right=True),
    "longest_wait_s": Column("longest wait s", drop=3, right=True),
    "most_overtaken": Column("overtaken", drop=4, right=True),
    "fairness": Column("fairness", drop=2, right=True),
    "refused": Column("refused", drop=6, right=True),
}


def rows(results: Iterable[Figures]) -> Iterator[list[Cell]]:
    """Yield a row of `COLUMNS` for each replay. If none had several replicas, these columns stay empty."""
    results = list(results)
    several = any(result["settings"]["replicas"] > 1 for result in results)
    for result in results:
        routed = _routed(result["settings"]) if several else {"router": None, "replicas": None}
        yield [_cell((result | routed)[name]) for name in COLUMNS]


def _routed(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {"router": settings["router"], "replicas": settings["replicas"]}


def _cell(value: Any) -> Cell:
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
    return value if value is None or isinstance(value, int) else str(value)


def label_of(figures: Figures) -> str:
    """Return a short name of a replay: its policy, and its replicas if there are several."""
    settings = figures["settings"]
    several = "" if settings["replicas"] == 1 else f", {settings['replicas']} × {settings['router']}"
    return f"{figures['policy']}{several}"


def check_plot() -> None:
    """Raise SimulatorError if matplotlib is missing. Call this before a long replay."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise SimulatorError(
            "--plot needs matplotlib, which is not installed: pip install 'llmfw-engine[plot]'"
        ) from error


def plot(results: Sequence[Figures], waits: Mapping[str, Floats], path: Path) -> None:
    """Plot the distribution of times to first token, the hit rates and the output rates of several policies.

    Args:
        results: metrics of each policy.
        waits: time to first token of each request, in seconds, by `label_of` the replay.
        path: path of the PNG file.

    Raises:
        SimulatorError: the file cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4), layout="constrained")
    times, hits, rates = figure.subplots(1, 3, width_ratios=(2, 1, 1))
    names = [label_of(result) for result in results]
    for name in names:
        seconds = waits[name]
        times.step(np.sort(seconds), np.arange(1, len(seconds) + 1) / max(1, len(seconds)), label=name)
    times.set(xscale="log", xlabel="time to first token, s", ylabel="share of requests")
    times.legend()
    for axes, key, label in ((hits, "hit_rate", "hit rate"), (rates, "output_tok_s", "output tokens/s")):
        axes.bar(range(len(names)), [result[key] for result in results])
        axes.set_xticks(range(len(names)), names, rotation=20, ha="right")
        axes.set_ylabel(label)
    try:
        figure.savefig(path, format="png", dpi=120)
    except OSError as error:
        raise SimulatorError(f"--plot {path} cannot be written: {error.strerror}") from error
