"""Has a process of pytest-xdist report each test once: reports of fixtures that did their work take longer than many tests.

The first process counts and prints tests by their calls. It needs the other reports only to list durations or to write
XML. pytest starts in each process with the same options, so each can tell.
"""

from __future__ import annotations

import pytest
from _pytest.runner import runtestprotocol


class BriefReports:
    """A plugin of pytest for a process of pytest-xdist. Reports come after a test's fixtures are gone."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run a test as pytest does, but pass on only what `is_needed`."""
        for report in runtestprotocol(item, log=False, nextitem=nextitem):
            if is_needed(report):
                item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True


def is_needed(report: pytest.TestReport) -> bool:
    """Return whether a report says more than that fixtures did their work."""
    return report.when == "call" or not report.passed


def are_enough(config: pytest.Config) -> bool:
    """Return whether this is a process of pytest-xdist, and nobody asks for the other reports."""
    asked = (config.getoption(name, None) for name in ("durations", "xmlpath", "setupshow"))
    return hasattr(config, "workerinput") and not any(
        each is not None and each is not False for each in asked
    )
