"""A test that takes too much processor time fails, unless it is marked `long`."""

from __future__ import annotations

import pytest

from .processor_time import ProcessorTime


def measure(item: pytest.Item, max_s: float) -> object:
    """Measure a test that returns 7."""
    measuring = ProcessorTime(max_s).pytest_runtest_call(item)
    next(measuring)
    with pytest.raises(StopIteration) as ended:
        measuring.send(7)
    return ended.value.value


def test_a_test_past_the_limit_fails(request: pytest.FixtureRequest) -> None:
    with pytest.raises(pytest.fail.Exception, match="make it shorter, or mark it `long`"):
        measure(request.node, -1)


def test_a_long_marked_test_may_exceed_the_limit(request: pytest.FixtureRequest) -> None:
    request.node.add_marker(pytest.mark.long)
    assert measure(request.node, -1) == 7


def test_a_test_within_the_limit_passes(request: pytest.FixtureRequest) -> None:
    assert measure(request.node, 60) == 7
