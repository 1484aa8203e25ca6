"""GET /v1/models and /v1/models/{id}.

Replies in Anthropic's format if the request has the header `anthropic-version`, else in OpenAI's format.
"""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, get
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp, ExceptionHandlersMap

from llmfw.api.anthropic.errors import handle_as_anthropic
from llmfw.api.anthropic.models import VERSION_HEADER, AnthropicModel, anthropic_model, model_page
from llmfw.api.http.errors import handle
from llmfw.api.schemas.models import ModelCard, ModelList
from llmfw.api.services.description import ServerDescription
from llmfw.api.text.by_model import ByModel
from llmfw.core.base.errors import ModelNotFoundError
from llmfw.core.interfaces.operation import describe

from .respond import json_response


def model_routes(models: ByModel[ServerDescription]) -> list[HTTPRouteHandler]:
    """Return the route handlers of `/v1/models`.

    Args:
        models: descriptions of the models.
    """

    @get(
        "/v1/models",
        exception_handlers=_HANDLERS,
        opt=describe("List the served models.", scope="models", reply=ModelList),
    )
    async def list_models(request: Request[Any, Any, Any]) -> ASGIApp:
        cards = [card for description in models for card in description.cards()]
        if VERSION_HEADER in request.headers:
            return json_response(model_page([*map(_theirs, cards)], request.query_params))
        return json_response(ModelList(data=cards))

    @get(
        "/v1/models/{model_id:path}",
        exception_handlers=_HANDLERS,
        opt=describe("Return a model.", scope="models", reply=ModelCard),
    )
    async def retrieve_model(request: Request[Any, Any, Any], model_id: str) -> ASGIApp:
        # An id may contain slashes (also as %2F), so it is the rest of the path. Litestar adds a leading one.
        try:
            card = models.of(model_id).card(model_id)  # a path of this machine may be a name, too
        except ModelNotFoundError:
            name = model_id.removeprefix("/")
            card = models.of(name).card(name)
        return json_response(_theirs(card) if VERSION_HEADER in request.headers else card)

    return [list_models, retrieve_model]


def _theirs(card: ModelCard) -> AnthropicModel:
    return anthropic_model(card.id, card.created, card.max_model_len)


def _handle(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Return the error reply in the form of the client's API."""
    return (handle_as_anthropic if VERSION_HEADER in request.headers else handle)(request, error)


_HANDLERS: ExceptionHandlersMap = {HTTPException: _handle, Exception: _handle}
