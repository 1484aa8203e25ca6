"""Log records as JSON, one object a line, for `--log-format json`."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

from .log import ENGINE, cut

FIELDS = "llmfw_fields"
"""Name of the attribute of a record that holds further members of its object; see `with_fields`."""


def with_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the argument `extra` of a log call that adds members to the record's object.

    Log lines in text format show only the message.
    """
    return {FIELDS: fields}


class JSONFormatter(logging.Formatter):
    """Formats records as JSON objects with these members.

    time       RFC 3339, in UTC, with milliseconds
    level      "debug", "info", "warning", "error" or "critical"
    logger     name of the logger
    pid        id of the process
    message    the message; texts that are longer than `log.MAX_TEXT` lack their middle
    engine     number or model of the engine that logs; only if the server has several
    traceback  the traceback of an exception; only if there is one
    and the members of `with_fields`
    """

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        found: dict[str, Any] = {
            "time": when.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "message": cut(record.getMessage()),
        }
        if hasattr(record, ENGINE):
            found["engine"] = getattr(record, ENGINE)
        if record.exc_info and record.exc_info[0] is not None:
            found["traceback"] = cut(self.formatException(record.exc_info))
        found |= getattr(record, FIELDS, {})
        return json.dumps(found)  # in ASCII, so that no text of a client moves a terminal's cursor
