"""The recent lines of a log hold nothing that a client may have sent unless that is wanted."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from llmfw.core.base.recent_log import RecentLogHandler
from llmfw.core.base.text_ring import TextRing

PROMPT = "a client's prompt"


def recorded(
    log: Callable[[logging.Logger], None], name: str = "llmfw.test", *, keeps_messages: bool = False
) -> str:
    """Return what is kept of the lines that a function logs."""
    ring = TextRing(memoryview(bytearray(10_000)))
    logger = logging.Logger(name)  # noqa: LOG001
    logger.addHandler(RecentLogHandler(ring, keeps_messages=keeps_messages))
    log(logger)
    return ring.text()


def fail(logger: logging.Logger) -> None:
    try:
        raise ValueError(PROMPT)
    except ValueError as error:
        logger.exception("step %d failed: %s", 7, f"ValueError: {error}\n[forged]")  # noqa: TRY401


@pytest.mark.parametrize("keeps_messages", [False, True])
def test_texts_are_kept_on_demand(keeps_messages: bool) -> None:
    text = recorded(fail, keeps_messages=keeps_messages)
    assert (PROMPT in text) is keeps_messages
    assert "ERROR: step 7 failed: " in text
    assert "ValueError" in text
    assert "in fail" in text


def test_a_traceback_starts_no_line_of_its_own() -> None:
    assert all(line.startswith("  ") for line in recorded(fail).splitlines()[1:])


def test_messages_of_other_packages_are_left_out() -> None:
    text = recorded(lambda logger: logger.warning(f"it got {PROMPT}"), name="a_plugin")
    assert text.endswith("WARNING: (a_plugin) …\n")


def chained(number: int) -> BaseException:
    error: BaseException = ValueError(0)
    for i in range(number):
        following = ValueError(i)
        following.__cause__ = error
        error = following
    return error


def grouped(number: int) -> BaseException:
    error: Exception = ValueError(0)
    for _ in range(number):
        error = ExceptionGroup("", [error])
    return error


@pytest.mark.parametrize("make", [chained, grouped])
def test_endless_chains_are_cut(make: Callable[[int], BaseException]) -> None:
    error = make(3000)
    text = recorded(lambda logger: logger.error("it failed", exc_info=error))
    assert "ERROR: it failed" in text
    assert 10 < text.count("Traceback") <= 20
    error.__cause__ = None  # the interpreter frees a chain recursively


def test_a_line_that_cannot_be_formatted_is_named() -> None:
    text = recorded(lambda logger: logger.error("it has %d", "no number"))
    assert text == "A line of llmfw.test could not be kept: TypeError\n"
