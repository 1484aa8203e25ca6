"""Errors in Ollama's form: `{"error": "what happened"}`."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.types import ExceptionHandlersMap

from llmfw.core import LLMFWError, ServerAPI


def _handle(request: Request[Any, Any, Any], error: Exception) -> Response[dict[str, str]]:
    api: ServerAPI = request.app.state["api"]
    failure = api.failure(error)
    return Response(
        {"error": failure.message},
        status_code=failure.status,
        headers=dict(failure.headers),
        media_type="application/json",
    )


OLLAMA_HANDLERS: ExceptionHandlersMap = {LLMFWError: _handle, HTTPException: _handle}
"""Exception handlers of the controllers.

Any other exception is a defect, which the server attributes to this plugin.
"""
