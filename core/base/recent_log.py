"""Keeps the last lines of a process's log in memory, for crash reports."""

from __future__ import annotations

import copy
import logging
from typing import TextIO, cast

from .bare_traceback import bare_traceback
from .log import LineFormatter, LineHandler
from .text_ring import TextRing


class RecentLogHandler(LineHandler):
    """Writes log records to a ring, as lines of text.

    Args:
        ring: the ring.
        keeps_messages: whether tracebacks have the messages of their exceptions, which may quote a request.
    """

    def __init__(self, ring: TextRing, *, keeps_messages: bool = False) -> None:
        super().__init__(cast("TextIO", ring))  # a handler needs `write` and `flush` alone
        self.setFormatter(LineFormatter())
        self._keeps_messages = keeps_messages

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        error = record.exc_info[1] if record.exc_info else None
        if error is None or self._keeps_messages:
            return super().format(record)
        bare = copy.copy(record)
        bare.exc_info, bare.exc_text = None, None
        return super().format(bare) + "\n  " + bare_traceback(error).replace("\n", "\n  ")
