"""The clock that conformance tests move is read by code that has imported it in any way."""

from __future__ import annotations

import datetime
import time as clock
from datetime import UTC
from datetime import datetime as moment
from time import time

from llmfw.core.testing.moved_clock import moved_clock


def test_all_names_of_the_clock_are_moved() -> None:
    before = clock.time()
    with moved_clock(3600.0):
        told = [
            clock.time(),
            time(),
            clock.time_ns() / 1e9,
            datetime.datetime.now(UTC).timestamp(),
            moment.now().timestamp(),
            moment.today().timestamp(),  # noqa: DTZ002 - it is moved, too
        ]
        assert isinstance(moment.now(), datetime.datetime)
        assert isinstance(datetime.datetime(2000, 1, 1), moment)
    assert all(3600 <= each - before < 3660 for each in told)


def test_the_clock_goes_back_after_errors() -> None:
    before = moment
    try:
        with moved_clock(3600.0):
            raise ValueError
    except ValueError:
        pass
    assert moment is before
    assert clock.time() - moment.now().timestamp() < 60
