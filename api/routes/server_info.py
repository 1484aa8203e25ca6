"""GET /version (vLLM's), and GET /server_info and /get_model_info (SGLang's), each under two names."""

from __future__ import annotations

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from llmfw.api.schemas.server_info import ModelInfo, ServerInfo, Version
from llmfw.api.services.description import ServerDescription
from llmfw.core.base.about import version
from llmfw.core.interfaces.operation import describe

from .respond import json_response


def server_info_routes(description: ServerDescription) -> list[HTTPRouteHandler]:
    """Return the route handlers of `/version`, `/server_info` and `/get_model_info`."""

    @get("/version", opt=describe("Return the version of the server.", scope="models", reply=Version))
    async def show_version() -> ASGIApp:
        return json_response(Version(version()))

    @get(
        ["/server_info", "/get_server_info"],
        opt=describe(
            "Return the server's settings, and what the engine has to do.", scope="models", reply=ServerInfo
        ),
    )
    async def server_info() -> ASGIApp:
        return json_response(await description.server_info())

    @get(
        ["/get_model_info", "/model_info"],
        opt=describe("Return the model and engine settings.", scope="models", reply=ModelInfo),
    )
    async def get_model_info() -> ASGIApp:
        return json_response(await description.model_info())

    return [show_version, server_info, get_model_info]
