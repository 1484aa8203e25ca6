"""Figures are what their names say, on replies that are written down by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmfw.plugins.bench.percentiles import percentile
from llmfw.plugins.bench.reply import Reply
from llmfw.plugins.bench.report import figures_of, summarize
from llmfw.plugins.bench.runner import Run


def reply(started: float, times: list[float], turn: int = 0, error: str | None = None) -> Reply:
    made = Reply(len(times), turn, started=started, times=times, prompt_tokens=10, error=error)
    made.output_tokens = len(times)
    return made


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.sampled_from([0, 1, 50, 99, 100]))
def test_percentiles_equal_numpy_s(values, percent):
    assert percentile(values, percent) == pytest.approx(np.percentile(values, percent), rel=1e-6, abs=1e-6)


def test_figures_equal_a_hand_calculated_run():
    run = Run("s", [reply(0.0, [1.0, 1.5, 2.0]), reply(1.0, [4.0, 5.0])], wall=4.0)
    found = figures_of(run)
    assert (found["output_tok_s"], found["total_tok_s"]) == (5 / 4, 25 / 4)
    assert (found["ttft_p50_ms"], found["itl_p50_ms"]) == (2000, 500)
    assert (found["ttft_p99_ms"], found["itl_p99_ms"]) == (2980, 990)
    assert "first_error" not in found


def test_failed_requests_count_as_failed_only():
    found = figures_of(Run("s", [reply(0.0, [1.0]), reply(0.0, [9.0], error="no")], wall=1.0))
    assert (found["requests"], found["failed"], found["output_tokens"]) == (2, 1, 1)
    assert (found["ttft_p99_ms"], found["itl_p50_ms"], found["first_error"]) == (1000, None, "no")


def test_an_entirely_failed_run_has_no_latencies():
    found = figures_of(Run("s", [reply(0.0, [], error="no")], wall=1.0))
    assert (found["output_tok_s"], found["ttft_p50_ms"], found["itl_p99_ms"]) == (0, None, None)


def test_first_token_times_are_grouped_by_turn():
    run = Run("s", [reply(0.0, [1.0]), reply(2.0, [2.5], turn=1), reply(0.0, [3.0])], wall=3.0)
    assert figures_of(run)["ttft_p50_by_turn_ms"] == [2000, 500]


def test_the_summary_has_medians_and_summed_failures():
    runs = [
        figures_of(Run(s, [reply(0.0, [1.0, 2.0])], wall)) for s, wall in (("a", 1.0), ("b", 4.0), ("c", 2.0))
    ]
    runs[1] |= {"failed": 2, "first_error": "no"}
    found = summarize(runs)
    assert (found["output_tok_s"], found["wall_s"], found["output_tokens"]) == (1.0, 2.0, 2)
    assert (found["failed"], found["first_error"], len(found["runs"])) == (2, "no", 3)


@pytest.mark.parametrize("first", [0, 1])
def test_a_summary_takes_runs_with_different_figures(first: int) -> None:
    """One run failed in its first turn: it has an error, and no figures by turn."""
    failed = figures_of(Run("a", [reply(0.0, [], error="no")], wall=1.0))
    whole = figures_of(Run("b", [reply(0.0, [1.0]), reply(2.0, [2.5], turn=1)], wall=3.0))
    found = summarize([failed, whole] if first == 0 else [whole, failed])
    assert (found["failed"], found["first_error"], found["ttft_p50_ms"]) == (1, "no", 750)
    assert not {"seed", "ttft_p50_by_turn_ms"} & found.keys()
