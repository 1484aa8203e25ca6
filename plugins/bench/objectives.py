"""Service-level objectives of requests, and goodput: the requests per second that meet all objectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .errors import BenchError
from .reply import Reply

METRICS = {
    "ttft": "time to first token",
    "tpot": "mean time between the tokens of a reply",
    "e2e": "time from sending a request to its last byte",
}

Objectives = Mapping[str, float]
"""Name of a metric → its limit in milliseconds."""


def parse_objectives(texts: Sequence[str]) -> dict[str, float]:
    """Return the objectives in texts such as "ttft=500", or "ttft:500" as vLLM writes them.

    Raises:
        BenchError: a text has another form, or a metric is unknown or named twice.
    """
    found: dict[str, float] = {}
    for text in texts:
        name, _, value = text.replace(":", "=", 1).partition("=")
        try:
            limit = float(value.removesuffix("ms"))
        except ValueError:
            limit = 0.0
        if name not in METRICS or not 0 < limit < float("inf"):
            known = ", ".join(METRICS)
            raise BenchError(
                f"--slo {text!r} is not METRIC=MILLISECONDS, such as ttft=500; the metrics are {known}"
            )
        if name in found:
            raise BenchError(f"--slo names {name} twice")
        found[name] = limit
    return found


def metrics_of(reply: Reply) -> dict[str, float | None]:
    """Return a reply's metrics by name, in milliseconds; None: the reply has too few tokens."""
    if not reply.times:
        return {"ttft": None, "tpot": None, "e2e": 1e3 * (reply.ended - reply.started)}
    gaps = (reply.output_tokens or 0) - 1
    return {
        "ttft": 1e3 * (reply.times[0] - reply.started),
        "tpot": 1e3 * (reply.times[-1] - reply.times[0]) / gaps if gaps > 0 else None,
        "e2e": 1e3 * (reply.ended - reply.started),
    }


def is_met(reply: Reply, objectives: Objectives) -> bool:
    """Return whether a request succeeded and met all objectives. Metrics that a reply lacks count as met."""
    if reply.error is not None:
        return False
    metrics = metrics_of(reply)
    return all((value := metrics[name]) is None or value <= limit for name, limit in objectives.items())
