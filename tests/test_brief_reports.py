"""Of a test that passes only its call is reported; of any other, all that did not pass."""

from __future__ import annotations

from typing import Any

import pytest

from .brief_reports import are_enough, is_needed


def report(when: Any, outcome: Any) -> pytest.TestReport:
    return pytest.TestReport("test", ("file", 1, "test"), {}, outcome, None, when)


@pytest.mark.parametrize("outcome", ["failed", "skipped"])
@pytest.mark.parametrize("when", ["setup", "call", "teardown"])
def test_what_did_not_pass_is_reported(when: str, outcome: str) -> None:
    assert is_needed(report(when, outcome))


def test_of_what_passed_the_call_is_reported() -> None:
    assert [is_needed(report(when, "passed")) for when in ("setup", "call", "teardown")] == [
        False,
        True,
        False,
    ]


class Config:
    """Has some of pytest's options."""

    def __init__(self, in_worker: bool, **options: Any) -> None:
        self._options = options
        if in_worker:
            self.workerinput: dict[str, Any] = {}

    def getoption(self, name: str, default: Any) -> Any:
        return self._options.get(name, default)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (Config(True, durations=None, xmlpath=None, setupshow=False), True),
        (Config(True), True),
        (Config(False), False),
        (Config(True, durations=0), False),
        (Config(True, xmlpath="found.xml"), False),
    ],
)
def test_durations_and_xml_need_all_reports(config: Any, expected: bool) -> None:
    assert are_enough(config) is expected
