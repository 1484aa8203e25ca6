"""Says how much processor time the tests took, and fails a test that takes too much for `make test`.

Processor time, not time: it is nearly the same on an idle machine and on a busy one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Generator
from typing import Any

import pytest

from .length import LENGTH

MAX_S = 15.0 if LENGTH == "short" else math.inf
"""Of a test that is not marked `long`. Seven are enough; a busy machine may double that."""


def processor_s() -> float:
    """Return the seconds of this process, and of the processes that it has started and that have ended."""
    return sum(os.times()[:4])


class ProcessorTime:
    """A plugin of pytest, in each process of pytest-xdist too.

    Args:
        max_s: of a test that is not marked `long`.
    """

    def __init__(self, max_s: float) -> None:
        self._max_s = max_s
        self._of_workers = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Fail a test that is too long."""
        before = processor_s()
        result = yield
        spent = processor_s() - before
        if spent > self._max_s and not item.get_closest_marker("long"):
            pytest.fail(f"took {spent:.0f} s of processor time: make it shorter, or mark it `long`")
        return result

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Tell the first process what this one took."""
        if (told := getattr(session.config, "workeroutput", None)) is not None:
            told["processor_s"] = processor_s()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add what another process took."""
        self._of_workers += getattr(node, "workeroutput", {}).get("processor_s", 0.0)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the sum."""
        # The first process has waited for the others, so their time is in its own, too.
        spent = max(processor_s(), self._of_workers)
        terminalreporter.write_line(f"{spent:.0f} s of processor time, in {LENGTH} length")
