"""The log: one line per fact, in the style `[2025-05-22 23:07:25] message` or as JSON, on stderr or in a file.

The API process and the engine process each call `setup_logging` once, so that their lines look alike.
"""

from __future__ import annotations

import copy
import logging
import re
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from .log_file import LogFile

TIME_PREFIX = "[%(asctime)s]"
TIME_FORMAT = "%Y-%m-%d %H:%M:%S"


_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_CONTROLS_OF_A_LINE = re.compile(_CONTROLS.pattern.replace(r"\x00-\x1f", r"\x00-\x08\x0b-\x1f"))


SEVERAL_LINES = {"several_lines": True}

MAX_TEXT = 65_536
"""Characters of a message or of a traceback that are written. An exception may quote a whole request."""


ENGINE = "llmfw_engine"
"""Name of a record's attribute with the number or the model of the engine that logs, if the server has several."""


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes log records to a stream. Clients' text cannot forge lines or move the terminal's cursor.

    Leaves out the middle of texts that are longer than MAX_TEXT. Control characters in a message are escaped,
    and the lines of a traceback are indented. To log a message of several lines, which must not contain
    clients' text, pass `extra=SEVERAL_LINES`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record, with control characters escaped."""
        safe = copy.copy(record)
        controls = _CONTROLS_OF_A_LINE if hasattr(record, "several_lines") else _CONTROLS
        index = getattr(record, ENGINE, None)
        whose = "" if index is None else f"[engine {index}] "
        safe.msg, safe.args = whose + _escaped(controls, cut(record.getMessage())), ()
        if record.exc_info and record.exc_info[0] is not None:
            lines = cut(logging.Formatter().formatException(record.exc_info))
            safe.exc_text = "  " + _escaped(_CONTROLS_OF_A_LINE, lines).replace("\n", "\n  ")
        return super().format(safe)


def cut(text: str) -> str:
    """Return a text without its middle if it is longer than MAX_TEXT."""
    left_out = len(text) - MAX_TEXT
    if left_out <= 0:
        return text
    half = MAX_TEXT // 2
    return f"{text[:half]} … {left_out} characters are left out … {text[-half:]}"


def _escaped(controls: re.Pattern[str], text: str) -> str:
    return controls.sub(lambda found: ascii(found[0])[1:-1], text)


class LineFormatter(logging.Formatter):
    """Formats records as `[time] message`, or `[time] LEVEL: message` from WARNING up."""

    def __init__(self) -> None:
        super().__init__(f"{TIME_PREFIX} %(message)s", TIME_FORMAT)
        self._with_level = logging.Formatter(f"{TIME_PREFIX} %(levelname)s: %(message)s", TIME_FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        if record.levelno >= logging.WARNING:
            return self._with_level.format(record)
        return super().format(record)


class LogTarget:
    """Where the log goes, and how its lines look. Each process has one.

    Args:
        form: "text" or "json" (see `json_log`).
        path: path of the log file; None: stderr.
        also: further handlers of llmfw's own lines, which are not those of each HTTP request.
        engine: number or model of the engine that this process is, for its lines; None: the server has one
            engine.

    Raises:
        ConfigError: the file cannot be written.
    """

    def __init__(
        self,
        form: str = "text",
        path: str | None = None,
        also: Sequence[logging.Handler] = (),
        engine: int | str | None = None,
    ) -> None:
        self._is_json = form == "json"
        self._engine = engine
        self.also = also
        self._stream: Any = sys.stderr if path is None else LogFile(path)

    def handler(self, text: logging.Formatter | None = None) -> logging.Handler:
        """Return a new handler.

        Args:
            text: formatter of lines of text; None: `LineFormatter`.
        """
        if self._is_json:
            from .json_log import JSONFormatter

            found: logging.Handler = logging.StreamHandler(self._stream)
            found.setFormatter(JSONFormatter())
        else:
            found = LineHandler(self._stream)
            found.setFormatter(text or LineFormatter())
        if self._engine is not None:
            found.addFilter(self._add_engine)
        return found

    def _add_engine(self, record: logging.LogRecord) -> bool:
        setattr(record, ENGINE, self._engine)
        return True


def setup_logging(level: str, target: LogTarget | None = None) -> None:
    """Set up the root logger. Replaces its other handlers.

    Args:
        level: least severe level to write: "debug", "info", "warning" or "error".
        target: where messages go; None: to stderr, as text.
    """
    target = target or LogTarget()
    logging.basicConfig(level=level.upper(), handlers=[target.handler(), *target.also], force=True)
