"""Goodput: the requests a second that meet all objectives."""

from __future__ import annotations

import pytest

from llmfw.plugins.bench.errors import BenchError
from llmfw.plugins.bench.objectives import is_met, metrics_of, parse_objectives
from llmfw.plugins.bench.reply import Reply
from llmfw.plugins.bench.report import figures_of
from llmfw.plugins.bench.runner import Run


def reply(times: list[float], ended: float, error: str | None = None) -> Reply:
    return Reply(len(times), started=1.0, ended=ended, times=times, output_tokens=len(times), error=error)


def test_metrics_equal_a_hand_calculated_reply() -> None:
    assert metrics_of(reply([1.5, 1.75, 2.5], 3.0)) == {"ttft": 500, "tpot": 500, "e2e": 2000}
    assert metrics_of(reply([1.5], 2.0)) == {"ttft": 500, "tpot": None, "e2e": 1000}


def test_token_time_counts_tokens_not_events() -> None:
    """A server may send several tokens in an event."""
    made = reply([2.0, 3.0], 3.0)
    made.output_tokens = 11
    assert metrics_of(made)["tpot"] == 100


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (["ttft=500"], True),
        (["ttft=499"], False),
        (["ttft:600", "e2e=1999ms"], False),
        (["tpot=500"], True),
        ([], True),
    ],
)
def test_all_objectives_must_be_met(limits: list[str], expected: bool) -> None:
    assert is_met(reply([1.5, 1.75, 2.5], 3.0), parse_objectives(limits)) is expected


def test_a_failed_request_meets_nothing() -> None:
    assert not is_met(reply([1.5], 2.0, error="no"), {"ttft": 1e9})


def test_goodput_counts_requests_a_second_of_the_run() -> None:
    run = Run("s", [reply([1.1], 2.0), reply([1.6], 2.0), reply([1.2], 2.0, error="no")], wall=4.0)
    found = figures_of(run, {"ttft": 500})
    assert (found["goodput_rps"], found["met_share"], found["requests_s"]) == (0.25, 0.3333, 0.5)


@pytest.mark.parametrize(
    "text", ["ttft", "ttft=", "ttft=-1", "ttft=nan", "ttft=inf", "itl=5", "ttft=1s", "=5"]
)
def test_a_wrong_objective_is_named(text: str) -> None:
    with pytest.raises(BenchError, match=r"the metrics are ttft, tpot, e2e"):
        parse_objectives([text])


def test_an_objective_is_named_once() -> None:
    with pytest.raises(BenchError, match=r"names ttft twice"):
        parse_objectives(["ttft=1", "ttft:2"])
