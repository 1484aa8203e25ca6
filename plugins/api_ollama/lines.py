"""Sends an answer as lines of JSON (NDJSON), one for each piece."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from litestar import Request
from litestar.exceptions import HTTPException
from litestar.types import Receive, Scope, Send

from llmfw.core import ServerAPI

MEDIA_TYPE = "application/x-ndjson"


class LinesResponse:
    """An ASGI response that sends lines as they arrive, until the client disconnects.

    Args:
        lines: iterator of lines, closed at the end. Empty lines are not sent.
        first: line already taken from `lines`.
    """

    def __init__(
        self,
        api: ServerAPI,
        request: Request[Any, Any, Any],
        lines: AsyncGenerator[bytes, None],
        first: bytes,
        headers: Mapping[str, str],
    ) -> None:
        self._api = api
        self._request = request
        self._lines = lines
        self._first = first
        self._headers = {"content-type": MEDIA_TYPE, "cache-control": "no-cache", **headers}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the lines."""
        headers = [(name.encode(), value.encode("latin-1")) for name, value in self._headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        with contextlib.suppress(HTTPException):  # the client has disconnected
            await self._api.while_connected(self._request, self._send_all(send))

    async def _send_all(self, send: Send) -> None:
        async with contextlib.aclosing(self._lines) as lines:
            if self._first:
                await send({"type": "http.response.body", "body": self._first, "more_body": True})
            async for line in lines:
                if line:
                    await send({"type": "http.response.body", "body": line, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def begin(
    api: ServerAPI,
    request: Request[Any, Any, Any],
    lines: AsyncGenerator[bytes, None],
    headers: Mapping[str, str],
) -> LinesResponse:
    """Wait for the first line, and return the response that sends all lines.

    Errors before the first line are raised, so that the reply can have the error's status.
    """

    async def first() -> bytes:
        try:
            return await anext(lines, b"")
        except BaseException:
            await lines.aclose()
            raise

    return LinesResponse(api, request, lines, await api.while_connected(request, first()), headers)
