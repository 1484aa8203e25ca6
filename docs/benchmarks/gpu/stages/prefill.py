"""Prompts without a server: so many at once, up to their first tokens."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from limits import prefill_seconds
from lines import Line
from offline import Offline
from task import Task
from timing import watch_kernels

ROUNDS = 3


def prefill_lines(offline: Offline, task: Task) -> Iterator[Line]:
    """Yield the lines of all cases, each measured several times with new prompts."""
    for requests, tokens, cached in task.sizes.prefills:
        run_once(offline, requests, tokens, cached)  # what a first run brings with it
        times = [run_once(offline, requests, tokens, cached) for _ in range(ROUNDS)]
        taken = statistics.median(times)
        rates = task.ceilings
        least = rates and prefill_seconds(task.shape, rates, requests, tokens, cached)
        behind = f" behind {cached} cached" if cached else ""
        yield Line(
            f"prefill {requests} × {tokens}{behind}",
            tok_s=requests * tokens / taken,
            ms=1000 * taken,
            limit_ms=1000 * least if least else None,
            goal="prefill" if requests * tokens >= 8192 else None,
            note=f"{1000 * min(times):.1f} to {1000 * max(times):.1f} ms, {offline.attention}",
            detail=kernels_of(offline, requests, tokens, cached),
        )


def kernels_of(offline: Offline, requests: int, tokens: int, cached: int) -> dict[str, Any]:
    """Return what the GPU ran for one more round, for the results' file; {} on a CPU."""
    kernels = watch_kernels(lambda: run_once(offline, requests, tokens, cached), offline.device)
    return {"kernels_s": kernels.by_name, "kernels_busy_s": kernels.busy} if kernels else {}


def run_once(offline: Offline, requests: int, tokens: int, cached: int) -> float:
    """Return the seconds from the coming of all prompts to the last one's first token."""
    shared = offline.tokens(cached)
    if shared:
        offline.run([[*shared, 2]], 1)
    prompts = offline.prompts(requests, cached + tokens, shared)
    return sum(step.seconds for step in offline.run(prompts, 1))
