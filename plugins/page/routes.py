"""Routes of the page: its HTML, its other files, and the stream for its view Watch.

The HTML is at `/page`, and for browsers also at `/`. The other files are below `/page/`.

The files need no key, because they are the same for all users. The data on the page comes from other routes,
with the key that the user enters. The stream is below `/admin`, which is for administrators.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

from litestar import Controller, Request, Response, get
from litestar.datastructures import State
from litestar.response import Stream

from llmfw.core import EngineClient, RequestError, describe

from .accepted_encodings import accepts_gzip
from .asset import Asset, read_assets
from .feed import Feed

FOLDER = Path(__file__).parent / "static"
INDEX = "index.html"
ASSETS = read_assets(FOLDER)

SECURITY = {
    "content-security-policy": "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""Headers of all files: only the page's own scripts and styles load, and no other site may frame the page."""


class Page(Controller):
    """Routes of the page."""

    path = "/page"

    @get("/", opt=describe("Return the page for browsers.", scope="", media_type="text/html", is_home=True))
    async def index(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        """Return the page's HTML. Its files are named relative to a path without a final slash."""
        if request.scope["raw_path"].endswith(b"/"):  # Litestar removes the slash from `path`
            return Response(b"", status_code=308, headers={"location": "../page"})
        return _reply(ASSETS[INDEX], request)

    @get(
        [f"/{name}" for name in ASSETS if name != INDEX],
        opt=describe("Return a file of the page.", scope=""),
        include_in_schema=False,
    )
    async def file(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        """Return one of the page's scripts, styles and icons."""
        return _reply(ASSETS[request.scope["path"].rpartition("/")[2]], request)


@get(
    "/admin/page/frames",
    opt=describe(
        "Stream the engine's figures and steps, ten times a second.",
        reply=None,
        media_type="text/event-stream",
    ),
)
async def frames(state: State) -> Stream:
    """Stream frames until the browser leaves."""
    if "page_feed" not in state:
        state["page_feed"] = Feed()
    feed: Feed = state["page_feed"]
    client: EngineClient = state["client"]
    if not state["services"].caller.is_admin:
        raise RequestError("the frames are for administrators; send the admin key", code="admin_forbidden")

    async def events() -> AsyncIterator[bytes]:
        async with aclosing(feed.frames(client)) as encoded:
            async for frame in encoded:
                yield b"data: %b\n\n" % frame

    return Stream(
        events(),
        media_type="text/event-stream",
        headers={"cache-control": "no-cache", "x-accel-buffering": "no"},
    )


def _reply(asset: Asset, request: Request[Any, Any, Any]) -> Response[bytes]:
    """Return a file, compressed if the browser accepts gzip; or 304 if the browser has the file already."""
    is_packed = accepts_gzip(request.headers.get("accept-encoding", ""))
    tag = asset.tag_of(is_packed=is_packed)
    headers = SECURITY | {"etag": tag, "cache-control": "no-cache", "vary": "accept-encoding"}
    if is_packed:
        headers["content-encoding"] = "gzip"
    if _has(tag, request.headers.get("if-none-match", "")):
        return Response(b"", status_code=304, headers=headers, media_type=asset.media_type)
    body = asset.packed if is_packed else asset.plain
    return Response(body, headers=headers, media_type=asset.media_type)


def _has(tag: str, given: str) -> bool:
    """Return whether the header `if-none-match` names an entity tag, or any."""
    return any(each.strip().removeprefix("W/") in (tag, "*") for each in given.split(","))
