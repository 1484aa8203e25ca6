"""The log: one line per fact, in the style `[2025-05-22 23:07:25] message`, on stderr.

Both processes call `setup_logging` once, so that their lines look alike. This module knows nothing of what is logged.
"""

from __future__ import annotations

import logging
import sys

TIME_PREFIX = "[%(asctime)s]"
TIME_FORMAT = "%Y-%m-%d %H:%M:%S"


class LineFormatter(logging.Formatter):
    """`[time] message`; from WARNING up the level's name comes before the message."""

    def __init__(self) -> None:
        super().__init__(f"{TIME_PREFIX} %(message)s", TIME_FORMAT)
        self._with_level = logging.Formatter(f"{TIME_PREFIX} %(levelname)s: %(message)s", TIME_FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        if record.levelno >= logging.WARNING:
            return self._with_level.format(record)
        return super().format(record)


def setup_logging(level: str) -> None:
    """Send all records from `level` ("debug", "info", "warning", "error") up to stderr, replacing other handlers."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
