"""Lines of the log: text of clients cannot forge one."""

from __future__ import annotations

import io
import logging

import pytest

from llmfw.core.base.log import MAX_TEXT, LineFormatter, LineHandler, LogTarget

HOSTILE = "a\n[2025-01-01 00:00:00] forged\r\t\x1b[2J\x9b1A\u2028\u202e\ud800"


@pytest.fixture
def written() -> tuple[logging.Logger, io.StringIO]:
    # Without a parent: pytest's record of half a surrogate pair could not be sent between its processes.
    stream, logger = io.StringIO(), logging.Logger("test of lines")  # noqa: LOG001
    handler = LineHandler(stream)
    handler.setFormatter(LineFormatter())
    logger.addHandler(handler)
    return logger, stream


def test_a_message_stays_on_its_line(written: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = written
    logger.warning("%s said %s", "ä", HOSTILE)
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue().endswith(
        r"ä said a\n[2025-01-01 00:00:00] forged\r\t\x1b[2J\x9b1A\u2028\u202e\ud800" + "\n"
    )


def test_the_middle_of_long_texts_is_left_out(written: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = written
    try:
        raise ValueError("begin" + "z" * 1_000_000 + "end")
    except ValueError as error:
        logger.log(logging.ERROR, "it failed: %s", error, exc_info=error)
    message, *traceback = stream.getvalue().splitlines()
    for text in (message, traceback[-1]):
        assert len(text) <= MAX_TEXT + 100
        assert text.endswith("zend")
    assert "begin" in message
    assert "characters are left out" in message


def test_a_traceback_starts_no_line(written: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = written
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logger.exception("it failed")
    lines = stream.getvalue().splitlines()
    assert "it failed" in lines[0]
    assert all(line.startswith("  ") for line in lines[1:])
    assert not {"\x1b", "\x9b", "\r", "\u202e"} & set(stream.getvalue())


def test_lines_of_one_of_several_engines_say_which(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.Logger("test of engines")  # noqa: LOG001
    for form, said in (("text", "] [engine 3] a\\nb"), ("json", '"engine": 3')):
        logger.handlers = [LogTarget(form, engine=3).handler()]
        logger.info("a\nb")
        assert said in capsys.readouterr().err
    logger.handlers = [LogTarget().handler()]
    logger.info("a")
    assert "engine" not in capsys.readouterr().err
