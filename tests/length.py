"""How many examples, seeds and operations random tests try: few in `make test`, all in `make test-all`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings

VARIABLE = "LLMFW_TEST_LENGTH"
LENGTHS = ("short", "full")
LENGTH = os.environ.get(VARIABLE, LENGTHS[0])
if LENGTH not in LENGTHS:
    raise ValueError(f"{VARIABLE} is {LENGTH!r}: set it to {' or '.join(LENGTHS)}, or unset it")

T = TypeVar("T")

# For the tests of hypothesis that say nothing of their own. A busy machine draws slowly.
BUSY = [HealthCheck.too_slow]
settings.register_profile("short", max_examples=30, suppress_health_check=BUSY, deadline=None)
settings.register_profile("full", max_examples=100, suppress_health_check=BUSY, deadline=None)

SELECTION = () if LENGTH == "full" else ("-m", "not long")
"""Options for a test that runs pytest in a process of its own: leave out what is marked `long`."""


WITHOUT_UNUSED = ("-p", "no:schemathesis", "-p", "no:faker")
"""Options for a test that runs pytest elsewhere: leave out plugins that it does not use, as pyproject.toml does here."""


def of_length(short: T, full: T) -> T:
    """Return `short`, or `full` where LLMFW_TEST_LENGTH says so."""
    return full if LENGTH == "full" else short


def also(cases: Iterable[Any]) -> list[Any]:
    """Return cases of a test with one parameter, for `make test-all` alone."""
    return [pytest.param(case, marks=pytest.mark.long) for case in cases]


def also_each(*cases: tuple[Any, ...]) -> list[Any]:
    """Return cases of a test with several parameters, for `make test-all` alone."""
    return [pytest.param(*case, marks=pytest.mark.long) for case in cases]
