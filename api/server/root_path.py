"""Serves the API below a path, for proxies that pass the path on, and for proxies that remove it."""

from __future__ import annotations

from typing import Any, cast

from litestar.types import ASGIApp, Receive, Scope, Send


class RootPath:
    """ASGI middleware that cuts a prefix off the paths of requests; paths without it stay as they are.

    Everything inside, such as the checks for /admin, sees the same path either way.

    Args:
        prefix: path such as "/llm", without a final "/".
    """

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        path: str = scope.get("path", "")
        if path == self._prefix or path.startswith(f"{self._prefix}/"):
            cut: Any = {**scope, "path": path.removeprefix(self._prefix) or "/"}
            if (raw := cast("bytes | None", scope.get("raw_path"))) is not None:
                cut["raw_path"] = raw.removeprefix(self._prefix.encode()) or b"/"
            scope = cut
        await self._app(scope, receive, send)
