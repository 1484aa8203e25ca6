"""How many replicas an objective needs."""

from __future__ import annotations

import pytest

from llmfw.plugins.simulator.errors import SimulatorError
from llmfw.plugins.simulator.objective import Objective, smallest


@pytest.mark.parametrize(
    ("text", "metric", "limit_ms"),
    [
        ("ttft_p95=500ms", "ttft_p95", 500.0),
        ("itl_p99=0.05s", "itl_p99", 50.0),
        ("ttft_p50=2s", "ttft_p50", 2e3),
    ],
)
def test_an_objective_has_a_metric_and_a_limit(text: str, metric: str, limit_ms: float) -> None:
    assert Objective.parse(text) == Objective(metric, pytest.approx(limit_ms))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ["ttft_p95", "ttft_p95=500", "ttft_p90=1s", "=1s", "ttft_p95=-1s", "ttft_p95=1e3ms"]
)
def test_other_objectives_are_refused(text: str) -> None:
    with pytest.raises(
        SimulatorError, match="is not METRIC=LIMIT, as in ttft_p95=500ms; the metrics are ttft_p50"
    ):
        Objective.parse(text)


@pytest.mark.parametrize(
    ("value", "refused", "met"), [(500.0, 0, True), (500.1, 0, False), (1.0, 1, False), (None, 0, False)]
)
def test_limits_hold_for_all_requests(value: float | None, refused: int, met: bool) -> None:
    assert Objective("ttft_p95", 500.0).is_met({"ttft_p95_ms": value, "refused": refused}) is met


@pytest.mark.parametrize("most", [1, 2, 7, 64])
def test_the_smallest_number_is_found(most: int) -> None:
    """And the number before it has been replayed, too; none is replayed twice."""
    for needed in range(1, 70):
        runs: list[int] = []

        def run(count: int, needed: int = needed, runs: list[int] = runs) -> dict[str, float]:
            runs.append(count)
            return {"ttft_p95_ms": 1000.0 * needed / count, "refused": 0}

        found = smallest(Objective("ttft_p95", 1000.0), most, run)
        assert found == (needed if needed <= most else None)
        assert len(runs) == len(set(runs))
        assert max(runs) <= most
        assert found in (None, 1) or found - 1 in runs
