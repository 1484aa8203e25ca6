"""Reads the body of a multipart form request: its boundary, its length, and its bytes as they arrive."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from litestar import Request
from litestar.exceptions import HTTPException, InternalServerException

from llmfw.api.files.form import MAX_OVERHEAD, MEDIA_TYPE, FileForm, boundary_of
from llmfw.api.server.bodies import CLIENT_CLOSED_REQUEST, check_encoding


def form_boundary(request: Request[Any, Any, Any]) -> str:
    """Return the boundary of a request's form.

    Raises:
        HTTPException: 415 if the body is not a multipart form, or has a content-encoding.
        RequestError: the content-type names no boundary.
    """
    check_encoding(request)
    content_type = request.headers.get("content-type", "")
    kind = content_type.partition(";")[0].strip().lower()
    if kind != MEDIA_TYPE:
        raise HTTPException(
            f"content-type is {kind[:100]!r}; send a form with 'content-type: {MEDIA_TYPE}'", status_code=415
        )
    return boundary_of(content_type)


def check_length(request: Request[Any, Any, Any], form: FileForm, limit: int) -> None:
    """Raise TooLargeError if a request's content-length shows that its file has more than `limit` bytes."""
    if (request.content_length or 0) > limit + MAX_OVERHEAD:
        raise form.too_large()


async def body_chunks(request: Request[Any, Any, Any]) -> AsyncIterator[bytes]:
    """Yield a request's body as it arrives; raise HTTPException if the client disconnects before its end."""
    async with contextlib.aclosing(request.stream()) as chunks:
        try:
            async for chunk in chunks:
                yield chunk
        except InternalServerException as error:
            raise HTTPException("the client closed the request", status_code=CLIENT_CLOSED_REQUEST) from error
