"""Times of calls on a device: between events on a GPU, by the clock on a CPU; and of the kernels that they launch."""

from __future__ import annotations

import itertools
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch

ROUNDS = 5
EXCERPT = 60
"""Kernels of an excerpt: more than a layer has."""

Call = Callable[[], object]


def median_seconds(calls: Sequence[Call], device: torch.device, per_round: int) -> float:
    """Return what one call takes: the median of rounds of `per_round` calls each, which go through `calls` in turn.

    Each is called once before, so that what a first call compiles does not count. On a GPU the calls of a round follow
    each other without waiting; where they launch slower than they run, the time is that of launching.
    """
    for call in calls:
        call()
    turns = itertools.cycle(calls)
    return statistics.median(_round([next(turns) for _ in range(per_round)], device) for _ in range(ROUNDS))


def _round(calls: Sequence[Call], device: torch.device) -> float:
    if device.type != "cuda":
        begun = time.perf_counter()
        for call in calls:
            call()
        return (time.perf_counter() - begun) / len(calls)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for call in calls:
        call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1000 / len(calls)


@dataclass(frozen=True)
class Kernels:
    """What a GPU ran meanwhile.

    Attributes:
        busy: seconds in which it ran anything.
        count: of kernels.
        by_name: seconds of the longest, by name.
        excerpt: some that followed each other, from the middle: name, microseconds in which nothing ran before it, and
            microseconds in which it ran.
    """

    busy: float
    count: int
    by_name: dict[str, float] = field(default_factory=dict)
    excerpt: list[tuple[str, float, float]] = field(default_factory=list)


def watch_kernels(call: Call, device: torch.device) -> Kernels | None:
    """Return what the GPU ran for a call; None on a CPU, and where the profiler saw nothing."""
    if device.type != "cuda":
        call()
        return None
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        call()
        torch.cuda.synchronize()
    events = [e for e in profiler.events() or () if e.device_type == torch.autograd.DeviceType.CUDA]
    if not events:
        return None
    by_name: Counter[str] = Counter()
    for event in events:
        by_name[event.name] += event.time_range.end - event.time_range.start
    return Kernels(
        busy=covered((e.time_range.start, e.time_range.end) for e in events) / 1e6,
        count=len(events),
        by_name={name[:120]: micros / 1e6 for name, micros in by_name.most_common(20)},
        excerpt=excerpt([(e.name, e.time_range.start, e.time_range.end) for e in events]),
    )


def excerpt(spans: Sequence[tuple[str, float, float]]) -> list[tuple[str, float, float]]:
    """Return spans from the middle as name, gap before, and length, in order of their beginnings."""
    ordered = sorted(spans, key=lambda span: span[1])
    first = max(1, len(ordered) // 2)
    chosen = pairwise(ordered[first - 1 : first + EXCERPT])
    return [
        (name[:80], round(begin - ended, 2), round(end - begin, 2))
        for (_, _, ended), (name, begin, end) in chosen
    ]


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Return how much is covered by spans that may overlap, each from a beginning to an end."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total
