"""Computes the remaining timeout of a request when it is sent to an engine."""

from __future__ import annotations

import time

import msgspec

from llmfw.core.base.request import EmbedRequest, Request
from llmfw.core.engine.admission.deadlines import deadline_error


def in_time(request: Request | EmbedRequest, begun_at: float) -> Request | EmbedRequest:
    """Return a request with its remaining timeout; raise DeadlineError if none remains."""
    if request.timeout_s is None:
        return request
    left = request.timeout_s - (time.monotonic() - begun_at)
    if left <= 0:
        raise deadline_error(request.timeout_s, "before the engine could start the request")
    return msgspec.structs.replace(request, timeout_s=left)
