"""Computes the metrics of a replay. docs/simulator.md explains their names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .ledger import Ledger
from .profile import Profile
from .trace import TraceRequest

Figures = dict[str, Any]
Floats = npt.NDArray[np.float64]


def figures_of(ledger: Ledger, trace: Sequence[TraceRequest], profile: Profile, chunk: int) -> Figures:
    """Return the metrics of a replay, by name."""
    served = ledger.served
    prompts = np.array([request.prompt_len for request in trace])[served]
    outputs = np.array([request.output_len for request in trace])[served]
    arrived, ended = ledger.arrived[served], ledger.last[served]
    makespan = float(ended.max() - arrived.min()) if served.any() else 0.0
    ttft = ttfts(ledger)
    return {
        "hit_rate": _share(int(ledger.cached[served].sum()), int(prompts.sum())),
        "ttft_p50_ms": _percentile_ms(ttft, 50),
        "ttft_p95_ms": _percentile_ms(ttft, 95),
        "ttft_p99_ms": _percentile_ms(ttft, 99),
        "itl_p50_ms": _percentile_ms(ledger.gaps, 50),
        "itl_p99_ms": _percentile_ms(ledger.gaps, 99),
        "output_tok_s": round(int(outputs.sum()) / makespan, 3) if makespan else 0.0,
        "retractions": ledger.num_retractions,
        "longest_wait_s": round(float((ledger.begun[served] - arrived).max(initial=0.0)), 6),
        "fairness": _fairness(ledger, trace, profile, chunk),
        "requests": len(trace),
        "refused": int((~served).sum()),
        "makespan_s": round(makespan, 6),
        "most_overtaken": int(ledger.overtaken[served].max(initial=0)),
    }


def ttfts(ledger: Ledger) -> Floats:
    """Return the time to first token of each served request, in seconds."""
    return (ledger.first - ledger.arrived)[ledger.served]


def _share(part: int, whole: int) -> float:
    return round(part / whole, 6) if whole else 0.0


def _percentile_ms(seconds: Floats, percent: float) -> float | None:
    return round(1e3 * float(np.percentile(seconds, percent)), 3) if len(seconds) else None


def _fairness(ledger: Ledger, trace: Sequence[TraceRequest], profile: Profile, chunk: int) -> float | None:
    """Return Jain's fairness index of the tenants' mean slowdowns, or, with one tenant, of its requests'.

    A request's slowdown is its duration, divided by its duration on an idle machine. Requests that take no
    time there, by a profile of zeros, have none.
    """
    served = [request for request in trace if ledger.replica[request.number] >= 0]
    slowdowns: dict[str, list[float]] = {}
    for request in served:
        taken = float(ledger.last[request.number] - ledger.arrived[request.number])
        alone = profile.alone_seconds(request.prompt_len, request.output_len, chunk)
        if alone:
            slowdowns.setdefault(request.tenant, []).append(taken / alone)
    groups = list(slowdowns.values())
    x = np.array(groups[0] if len(groups) == 1 else [np.mean(group) for group in groups])
    return round(float(x.sum() ** 2 / (len(x) * (x**2).sum())), 6) if len(x) else None
