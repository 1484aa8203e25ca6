"""The log as JSON: each record is one object on a line, whatever clients send."""

from __future__ import annotations

import io
import json
import logging
from datetime import datetime
from typing import Any

import pytest

from llmfw.core.base.json_log import JSONFormatter, with_fields
from llmfw.core.base.log import MAX_TEXT

HOSTILE = 'a"}\n{"forged": 1}\r\t\x1b[2J\x9b1A\u2028\u202e\ud800'


def written(*arguments: Any, **extra: Any) -> dict[str, Any]:
    """Log a message and return its object."""
    stream, logger = io.StringIO(), logging.Logger("test")  # noqa: LOG001
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JSONFormatter())
    logger.addHandler(handler)
    logger.warning(*arguments, **extra)
    [line] = stream.getvalue().splitlines()
    assert line.isascii()
    assert line.isprintable()
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_record_is_an_object_with_a_time() -> None:
    found = written("%d of %s", 3, "a")
    assert (found["level"], found["logger"], found["message"]) == ("warning", "test", "3 of a")
    assert datetime.fromisoformat(found["time"]).tzinfo is not None


def test_hostile_text_arrives_unchanged() -> None:
    assert written("%s", HOSTILE)["message"] == HOSTILE


def test_a_traceback_is_a_member() -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        found = written("it failed", exc_info=True)
    assert found["traceback"].startswith("Traceback")
    assert found["message"] == "it failed"


def test_fields_are_members() -> None:
    assert written("a line", extra=with_fields({"status": 200, "tenant": "a"}))["status"] == 200


@pytest.mark.parametrize("length", [MAX_TEXT, 10 * MAX_TEXT])
def test_long_texts_lose_their_middle(length: int) -> None:
    assert len(written("%s", "x" * length)["message"]) <= MAX_TEXT + 100
