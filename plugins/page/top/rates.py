"""Rates of an engine between two moments, per second."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from llmfw.core import EngineStats

HISTORY = 60


class Rates(msgspec.Struct, frozen=True):
    """Figures of one interval.

    Attributes:
        output: generated tokens a second.
        prompt: computed prompt tokens a second, without tokens from the prefix cache.
        steps: steps a second.
        cached_share: share of the started prompts' tokens that came from the prefix cache; None if no prompt
            started.
        accepted_share: share of drafted tokens that were accepted; None if no token was drafted.
        busy_share: share of the time in which the engine had work; None if not known.
    """

    output: float
    prompt: float
    steps: float
    cached_share: float | None
    accepted_share: float | None
    busy_share: float | None


class RateMeter:
    """Computes rates from an engine's counters, and keeps the last output rates.

    Attributes:
        outputs: `Rates.output` of the last intervals, at most HISTORY of them.
    """

    def __init__(self) -> None:
        self.outputs: deque[float] = deque(maxlen=HISTORY)
        self._before: tuple[float, EngineStats] | None = None

    def next(self, at: float, stats: EngineStats) -> Rates | None:
        """Return the rates since the last call; None on the first call, and after a restart of the engine.

        Args:
            at: time in seconds since the epoch.
        """
        before, self._before = self._before, (at, stats)
        if before is None or at <= before[0] or stats.num_steps < before[1].num_steps:
            return None
        rates = rates_between(before[1], stats, at - before[0])
        self.outputs.append(rates.output)
        return rates


def rates_between(before: EngineStats, now: EngineStats, seconds: float) -> Rates:
    """Return the rates of an interval from the counters at its two ends."""
    prompt = now.num_prompt_tokens - before.num_prompt_tokens
    cached = now.num_prompt_cached - before.num_prompt_cached
    idle = now.idle_seconds - before.idle_seconds
    drafted = now.num_drafted_tokens - before.num_drafted_tokens
    accepted = now.num_accepted_tokens - before.num_accepted_tokens
    return Rates(
        output=(now.num_generated_tokens - before.num_generated_tokens) / seconds,
        prompt=(prompt - cached) / seconds,
        steps=(now.num_steps - before.num_steps) / seconds,
        cached_share=_share(cached, prompt),
        accepted_share=_share(accepted, drafted),
        busy_share=min(1.0, max(0.0, 1 - idle / seconds)) if now.idle_seconds else None,
    )


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def sparkline(values: Sequence[float], width: int) -> str:
    """Return the last `width` values as bars of eight heights, the highest value at full height."""
    shown = list(values)[-width:]
    highest = max(shown, default=0.0)
    bars = " ▁▂▃▄▅▆▇█"
    return "".join(bars[round(8 * value / highest)] if highest else bars[0] for value in shown)
