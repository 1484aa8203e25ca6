"""Restarts come at once, then later and later, and have an end."""

from __future__ import annotations

from llmfw.core.client.restarts import HOUR_S, RestartPolicy, Restarts


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_delays_grow_up_to_half_a_minute() -> None:
    restarts = Restarts(RestartPolicy())
    assert [restarts.begin() for _ in range(9)] == [0, 1, 2, 4, 8, 16, 30, 30, 30]


def test_an_answered_request_resets_the_delay() -> None:
    restarts = Restarts(RestartPolicy())
    restarts.begin()
    restarts.begin()
    restarts.note_answer()
    assert restarts.begin() == 0


def test_the_limit_counts_only_the_last_hour() -> None:
    clock = Clock()
    restarts = Restarts(RestartPolicy(max_per_hour=2), clock)
    for _ in range(2):
        assert restarts.reason_against() is None
        restarts.begin()
        clock.now += 100
    assert "restarted 2 times within the last hour" in str(restarts.reason_against())
    clock.now = HOUR_S
    assert restarts.reason_against() is None
    assert restarts.total == 2


def test_five_failed_starts_in_a_row_give_up() -> None:
    restarts = Restarts(RestartPolicy())
    restarts.note_start(failed=True)
    restarts.note_start(failed=False)
    for _ in range(5):
        assert restarts.reason_against() is None
        restarts.note_start(failed=True)
    assert "failed to start 5 times in a row" in str(restarts.reason_against())


def test_restart_never_forbids_restarts() -> None:
    assert Restarts(RestartPolicy(is_on=False)).reason_against() == "--restart is never"
