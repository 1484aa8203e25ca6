"""GET /: name and version of the server, for people in a browser and for clients that look for a server."""

from __future__ import annotations

import msgspec
from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from llmfw.api.schemas.about import About, Links
from llmfw.core.base.about import version
from llmfw.core.interfaces.operation import describe

from .respond import json_response


def about_routes(served_name: str, *, needs_key: bool, root_path: str = "") -> list[HTTPRouteHandler]:
    """Return the route handlers of /.

    Args:
        served_name: served name of the model.
        needs_key: whether clients must send an API key; version and model are not shown then.
        root_path: path below which clients reach the routes; "": none.
    """
    links = {name: f"{root_path}{path}" for name, path in msgspec.structs.asdict(Links()).items()}
    about = About(links=Links(**links))
    if not needs_key:
        about.version, about.model = version(), served_name

    @get("/", opt=describe("Return links to the server's routes and pages.", scope="", reply=About))
    async def root() -> ASGIApp:
        return json_response(about)

    return [root]
