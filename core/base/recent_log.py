"""Keeps the last lines of a process's log in memory, for crash reports."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from typing import Any, TextIO, cast

from .bare_traceback import bare_traceback
from .log import LineFormatter, LineHandler
from .text_ring import TextRing

LEFT_OUT = "…"
"""Stands for a text in a log line that may quote a request."""
_OURS = ("llmfw", "uvicorn")


class RecentLogHandler(LineHandler):
    """Writes log records to a ring, as lines of text. Never raises.

    Args:
        ring: the ring.
        keeps_messages: whether lines keep all texts, such as exception messages. If False, lines keep only
            numbers, the fixed words of llmfw's own messages, and tracebacks without messages, because any
            other text may quote a request.
    """

    def __init__(self, ring: TextRing, *, keeps_messages: bool = False) -> None:
        super().__init__(cast("TextIO", ring))  # a handler needs `write` and `flush` alone
        self.setFormatter(LineFormatter())
        self._keeps_messages = keeps_messages

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        try:
            line = self.format(record)
        except Exception as error:  # noqa: BLE001 - a logged exception may come from any code
            line = f"A line of {record.name} could not be kept: {type(error).__name__}"
        self.stream.write(f"{line}\n")

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        if self._keeps_messages:
            return super().format(record)
        bare = copy.copy(record)
        bare.exc_info, bare.exc_text = None, None
        if record.name.partition(".")[0] in _OURS and isinstance(record.msg, str):
            bare.args = _numbers_of(record.args)
        else:
            bare.msg, bare.args = f"({record.name}) {LEFT_OUT}", ()
        error = record.exc_info[1] if record.exc_info else None
        trace = "" if error is None else "\n  " + bare_traceback(error).replace("\n", "\n  ")
        return super().format(bare) + trace


def _numbers_of(args: Any) -> Any:
    """Return the arguments of a message, with LEFT_OUT in place of each argument that is not a number."""
    if isinstance(args, Mapping):
        return {name: _number(value) for name, value in args.items()}
    return tuple(map(_number, args or ()))


def _number(value: Any) -> Any:
    return value if isinstance(value, int | float) else LEFT_OUT
