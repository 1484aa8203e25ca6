"""Builds the lines of output and error files."""

from __future__ import annotations

import uuid

import msgspec
from msgspec import UNSET, Raw

from llmfw.api.schemas.batches import LineError, LineResponse, OutputLine

from .endpoints import Answer

UNRUN = {
    "batch_expired": "This request was not executed before the completion window of its batch was over.",
    "batch_cancelled": "This request was not executed: its batch was cancelled.",
    "batch_failed": "This request was not executed: its batch failed.",
    "line_crashed_server": "The server or its engine crashed each time it worked on this request, so it is not tried "
    "again. The server's log has the reason. Change the request or report the crash.",
}
"""Error messages for lines that did not run: code → message."""


def answered(custom_id: str, answer: Answer) -> bytes:
    """Return the output or error line with an endpoint's answer to a request."""
    response = LineResponse(
        status_code=answer.status,
        request_id=f"req_{uuid.uuid4().hex}",
        body=Raw(answer.body),
        ignored_params=answer.ignored or UNSET,
    )
    return _encoded(custom_id, response, None)


def unrun(custom_id: str, code: str) -> bytes:
    """Return the error line that says why a request did not run. `code` is a key of UNRUN."""
    return _encoded(custom_id, None, LineError(code=code, message=UNRUN[code]))


def _encoded(custom_id: str, response: LineResponse | None, error: LineError | None) -> bytes:
    line = OutputLine(id=f"batch_req_{uuid.uuid4().hex}", custom_id=custom_id, response=response, error=error)
    return msgspec.json.encode(line)
