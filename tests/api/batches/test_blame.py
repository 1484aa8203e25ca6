"""Lines are found guilty by two crashes, and by no fewer than four kills from outside."""

from __future__ import annotations

import signal

import pytest

from llmfw.api.batches import blame
from llmfw.core.client.process import _how_it_ended
from llmfw.core.interfaces.batch_store import LineCrash
from llmfw.core.testing.batch_model import job


@pytest.mark.parametrize(
    ("returncode", "points"),
    [
        (-signal.SIGSEGV, blame.CRASH),
        (-signal.SIGABRT, blame.CRASH),
        (1, blame.CRASH),
        (0, blame.KILL),
        (-signal.SIGKILL, blame.KILL),
        (-signal.SIGTERM, blame.KILL),
    ],
)
def test_an_engine_killed_from_outside_counts_half(returncode: int, points: int) -> None:
    assert blame.points_of(_how_it_ended(returncode)) == points


def test_closing_the_engine_counts_no_points() -> None:
    assert blame.points_of("the engine was closed") == 0


@pytest.mark.parametrize(
    ("points", "times_in_company", "times_alone"), [(blame.CRASH, 1, 1), (blame.KILL, 2, 2)]
)
def test_lines_become_suspects_after_enough_crashes(
    points: int, times_in_company: int, times_alone: int
) -> None:
    """Once for crashes, twice for kills, whether alone or with others."""
    record = job()
    for _ in range(times_in_company):
        assert blame.suspects(record) == {}
        record = blame.accused(record, [3], points, ())
    for _ in range(times_alone):
        assert blame.suspects(record) == {3: False}
        record = blame.accused(record, [3], points, ())
    assert blame.suspects(record) == {3: True}


def test_lines_with_a_result_are_forgotten() -> None:
    record = blame.accused(job(), [5, 3], blame.CRASH, ())
    record = blame.accused(record, [8], blame.KILL, {5})
    assert record.line_crashes == (LineCrash(line=3, points=2), LineCrash(line=8, points=1))


def test_a_job_is_abandoned_at_its_third_crash() -> None:
    record = job(status="finalizing")
    for _ in range(blame.MAX_CRASHES):
        assert blame.why_abandoned(record) is None
        record = blame.crashed_as_a_whole(record)
    reason = blame.why_abandoned(record)
    assert reason is not None
    assert reason.code == "batch_crashed_server"
