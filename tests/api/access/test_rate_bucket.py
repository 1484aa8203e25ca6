"""A token bucket allows its amount per minute, and says exactly when the next request may start."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llmfw.api.access.rate_bucket import RateBucket

uses = st.lists(st.tuples(st.floats(0, 90), st.integers(1, 50)), max_size=40)


@given(st.integers(1, 100), uses)
def test_the_rate_holds_over_any_time(per_minute: int, uses: list[tuple[float, int]]) -> None:
    """What is used in any interval is a burst, what fills meanwhile, and the last request's excess."""
    bucket, now, used = RateBucket(per_minute, 0.0), 0.0, []
    for pause, amount in uses:
        now += pause
        if not bucket.seconds_until(amount, now):
            bucket.take(amount, now)
            used.append((now, amount))
    for i, (start, _) in enumerate(used):
        for j in range(i, len(used)):
            end, last = used[j]
            total = sum(amount for _, amount in used[i : j + 1])
            assert total <= per_minute * (1 + (end - start) / 60) + max(0, last - per_minute) + 1e-6


@given(st.integers(1, 10_000), uses, st.integers(1, 20_000))
def test_the_wait_is_exact(per_minute: int, uses: list[tuple[float, int]], amount: int) -> None:
    bucket, now = RateBucket(per_minute, 0.0), 0.0
    for pause, used in uses:
        now += pause
        bucket.take(used, now)
    wait_s = bucket.seconds_until(amount, now)
    if wait_s > 0.01:
        assert bucket.seconds_until(amount, now + wait_s * 0.999) > 0
    assert bucket.seconds_until(amount, now + wait_s) == 0


def test_output_is_paid_back_later() -> None:
    bucket = RateBucket(60, 0.0)
    bucket.take(180, 0.0)
    assert bucket.seconds_until(1, 0.0) == 121
    assert bucket.seconds_until(1, 60.0) == 61


def test_output_after_a_pause_is_counted() -> None:
    """A bucket that has been full for a while holds no more than before."""
    bucket = RateBucket(60, 0.0)
    bucket.take(60, 600.0)
    assert bucket.seconds_until(1, 600.0) == 1


def test_a_full_bucket_suffices_for_any_amount() -> None:
    assert RateBucket(10, 0.0).seconds_until(1000, 0.0, leave=5) == 0


def test_a_changed_rate_keeps_what_was_used() -> None:
    bucket = RateBucket(60, 0.0)
    bucket.take(60, 0.0)
    bucket.change(600, 0.0)
    assert bucket.seconds_until(10, 0.0) == 1
    bucket.change(6, 600.0)
    assert bucket.seconds_until(6, 600.0) == 0
    bucket.take(6, 600.0)
    assert bucket.seconds_until(1, 600.0) == 10


def test_unused_amounts_come_back() -> None:
    bucket = RateBucket(2, 0.0)
    bucket.take(2, 0.0)
    bucket.take(-1, 0.0)
    assert bucket.seconds_until(1, 0.0) == 0
