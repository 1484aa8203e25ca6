"""Finds the smallest number of replicas whose figures meet an objective, such as `ttft_p95=500ms`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from .errors import SimulatorError
from .figures import Figures

METRICS = ("ttft_p50", "ttft_p95", "ttft_p99", "itl_p50", "itl_p99")
_SPELLING = re.compile(r"(\w+)=(\d+(?:\.\d+)?)(ms|s)")


@dataclass(frozen=True, slots=True)
class Objective:
    """An upper limit of one metric.

    Attributes:
        metric: one of METRICS.
        limit_ms: milliseconds that it may take.
    """

    metric: str
    limit_ms: float

    @classmethod
    def parse(cls, text: str) -> Objective:
        """Return the objective that a text such as `ttft_p95=500ms` spells.

        Raises:
            SimulatorError: the text does not spell one.
        """
        found = _SPELLING.fullmatch(text)
        if found is None or found[1] not in METRICS:
            raise SimulatorError(
                f"--slo {text!r} is not METRIC=LIMIT, as in ttft_p95=500ms; the metrics are {', '.join(METRICS)}"
            )
        return cls(found[1], float(found[2]) * (1e3 if found[3] == "s" else 1))

    def is_met(self, figures: Figures) -> bool:
        """Return whether a replay meets the objective. A replay that refuses a request does not."""
        value = figures[f"{self.metric}_ms"]
        return value is not None and value <= self.limit_ms and not figures["refused"]


def smallest(objective: Objective, most: int, run: Callable[[int], Figures]) -> int | None:
    """Return the smallest number of replicas that meets the objective; None if no number up to `most` does.

    Doubles the number until it meets the objective, then bisects. More replicas are taken to be better.

    Args:
        run: replays the trace with a number of replicas; called at most once for each number.
    """
    failed, count = 0, 1
    while not objective.is_met(run(count)):
        if count == most:
            return None
        failed, count = count, min(2 * count, most)
    while count - failed > 1:
        middle = (failed + count) // 2
        if objective.is_met(run(middle)):
            count = middle
        else:
            failed = middle
    return count
