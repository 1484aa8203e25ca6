"""GET /version (vLLM's), and GET /server_info and /get_model_info (SGLang's), each under two names."""

from __future__ import annotations

from typing import Any

from litestar import Request, get
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from llmfw.api.schemas.server_info import ModelInfo, ServerInfo, Version
from llmfw.api.services.description import ServerDescription
from llmfw.api.text.by_model import ByModel
from llmfw.core.base.about import version
from llmfw.core.interfaces.operation import describe

from .respond import json_response, model_in


def server_info_routes(models: ByModel[ServerDescription]) -> list[HTTPRouteHandler]:
    """Return the route handlers of `/version`, `/server_info` and `/get_model_info`.

    Args:
        models: descriptions of the models.
    """

    @get("/version", opt=describe("Return the version of the server.", scope="models", reply=Version))
    async def show_version() -> ASGIApp:
        return json_response(Version(version()))

    @get(
        ["/server_info", "/get_server_info"],
        opt=describe(
            "Return the server's settings, and what the engine has to do.",
            scope="models",
            reply=ServerInfo,
            query={"model": str},
        ),
    )
    async def server_info(request: Request[Any, Any, Any]) -> ASGIApp:
        return json_response(await models.of(model_in(request)).server_info())

    @get(
        ["/get_model_info", "/model_info"],
        opt=describe(
            "Return the model and engine settings.", scope="models", reply=ModelInfo, query={"model": str}
        ),
    )
    async def get_model_info(request: Request[Any, Any, Any]) -> ASGIApp:
        return json_response(await models.of(model_in(request)).model_info())

    return [show_version, server_info, get_model_info]
