"""The report of a soak sees a leak below an allocator's noise, and takes no noise for a leak."""

from __future__ import annotations

import random

import pytest

from .load import Outcome
from .meter import Reading
from .report import MIB, Soak, floors, growth, slope
from .run import Sample, figures

HOUR_S = 3600
EVERY_S = 30


def soak(
    leak: float = 0.0,
    noise: float = 0.0,
    lost: float = 0.0,
    engine: int = 2,
    error: str = "",
    warm_up_s: float = 600,
) -> Soak:
    """Return a soak of 90 minutes after a warm-up in which memory grows a lot.

    Args:
        leak: of the engine, in bytes an hour.
        noise: what the engine's memory is more by than its floor, at most.
        lost: descriptors an hour that the API process does not close.
        engine: the engine's process in the second half.
        error: of one visit.
    """
    draw, samples = random.Random(1), []
    for at_s in range(0, int(warm_up_s + 1.5 * HOUR_S), EVERY_S):
        warmth = min(at_s, warm_up_s) * MIB
        memory = int(400 * MIB + warmth + leak * at_s / HOUR_S + draw.random() ** 2 * noise)
        pid = engine if at_s > HOUR_S else 2
        rows = [
            Reading("api", 1, 80 * MIB, 80 * MIB, 80 * MIB, int(40 + lost * at_s / HOUR_S), 11, 0.1 * at_s),
            Reading("engine", pid, memory, memory, memory, 11, 7, 0.1 * at_s),
        ]
        samples.append(Sample(at_s, rows, {}))
    return Soak(
        samples, [Outcome(1.0, "chat", None, 0.1), Outcome(2.0, "stream", 0.1, 0.2, error)], warm_up_s
    )


def test_a_sound_server_has_no_complaints() -> None:
    assert soak(noise=30 * MIB).complaints() == []


@pytest.mark.parametrize("noise", [0, 5 * MIB])
def test_a_leak_of_megabytes_is_seen(noise: float) -> None:
    [complaint] = soak(leak=3 * MIB, noise=noise).complaints()
    assert complaint.startswith("engine: memory grows by ")
    grown = growth(soak(leak=3 * MIB, noise=noise).series("engine", "anonymous"))
    assert abs(grown.per_hour / MIB - 3) < 0.5
    assert (grown.last - grown.first) / MIB == pytest.approx(4, abs=2)


def test_growth_of_the_warm_up_does_not_count() -> None:
    assert growth(soak().series("engine", "anonymous")).per_hour == pytest.approx(0, abs=1)
    assert growth(soak(warm_up_s=0).series("engine", "anonymous")).first == 400 * MIB


def test_lost_descriptors_are_seen() -> None:
    [complaint] = soak(lost=4).complaints()
    assert complaint.startswith("api: descriptors grew from ")


def test_a_restarted_engine_is_seen() -> None:
    assert soak(engine=3).complaints() == ["engine: 2 processes, one after the other"]


def test_a_failed_visit_is_seen() -> None:
    assert soak(error="500").complaints() == ["1 times: 500"]


def test_a_soak_without_samples_is_no_success() -> None:
    assert Soak([], [], 0).complaints() == [
        f"{role}: no sample after the warm-up" for role in ("api", "engine")
    ]


def test_floors_are_the_least_of_each_interval() -> None:
    points = [(0.0, 5.0), (100.0, 3.0), (299.0, 4.0), (300.0, 9.0), (700.0, 2.0)]
    assert floors(points, 300) == [(100.0, 3.0), (300.0, 9.0), (700.0, 2.0)]


def test_a_slope_has_its_standard_error() -> None:
    assert slope([(0, 1), (1, 3), (2, 5), (3, 7)]) == (pytest.approx(2), pytest.approx(0, abs=1e-9))
    assert slope([(0, 0), (1, 1), (2, 0)]) == (0, pytest.approx((2 / 3 / 2) ** 0.5))


def test_tables_have_a_row_for_each_role() -> None:
    assert [row.split("|")[1].strip() for row in soak().memory_table()[2:]] == ["api", "engine"]
    assert "| 10.0% |" in soak().memory_table()[2]
    assert len(soak().latency_table(1.5)) == 2 + 2


def test_metrics_are_summed_over_their_labels() -> None:
    text = '# HELP x\nllmfw_running_requests{class="live"} 2.0\nllmfw_running_requests{class="deferrable"} 1.0\nother 3\n'
    assert figures(text) == {"llmfw_running_requests": 3.0}
