"""The recent lines of a log hold no message of an exception unless that is wanted."""

from __future__ import annotations

import logging

import pytest

from llmfw.core.base.recent_log import RecentLogHandler
from llmfw.core.base.text_ring import TextRing

PROMPT = "a client's prompt"


def recorded(*, keeps_messages: bool) -> str:
    ring = TextRing(memoryview(bytearray(10_000)))
    logger = logging.Logger("test of recent lines")  # noqa: LOG001
    logger.addHandler(RecentLogHandler(ring, keeps_messages=keeps_messages))
    try:
        raise ValueError(PROMPT)
    except ValueError:
        logger.exception("the step %s", "failed\n[forged]")
    return ring.text()


@pytest.mark.parametrize("keeps_messages", [False, True])
def test_messages_of_exceptions_are_kept_on_demand(keeps_messages: bool) -> None:
    text = recorded(keeps_messages=keeps_messages)
    assert (PROMPT in text) is keeps_messages
    assert "ERROR: the step failed\\n[forged]" in text
    assert "ValueError" in text
    assert "in recorded" in text


def test_a_traceback_starts_no_line_of_its_own() -> None:
    assert all(line.startswith("  ") for line in recorded(keeps_messages=False).splitlines()[1:])
