"""POST /invocations, SageMaker's route for all requests. The body's fields select the route that answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from litestar import Request, post
from litestar.datastructures import State
from litestar.types import ASGIApp

from llmfw.core import RequestError, ServerAPI, describe

CHAT, COMPLETION, EMBEDDING = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"


@post(
    "/invocations",
    status_code=200,
    opt=describe(
        "Answer a chat, a completion or an embedding request, whichever the fields make.",
        body=dict[str, Any],
        reply=dict[str, Any],
        chunk=dict[str, Any],
    ),
)
async def invoke(request: Request[Any, Any, Any], state: State) -> ASGIApp:
    """Forward the request to the route that the fields of its body select."""
    api: ServerAPI = state["api"]
    body = await api.read_object(request)
    given = [name for name, value in body.items() if bytes(value).strip() != b"null"]
    path = path_of(given, embeds="embedding" in api.model_named(_model_of(body)).capabilities)
    response: ASGIApp = await api.forward(request, path, body)
    return response


def _model_of(body: Mapping[str, msgspec.Raw]) -> str | None:
    """Return the model that a body names. The route that gets the body refuses a name that is not a string."""
    found = msgspec.json.decode(body["model"]) if "model" in body else None
    return found if isinstance(found, str) else None


def path_of(names: Collection[str], *, embeds: bool) -> str:
    """Return the path of the route that the fields of a body select.

    Args:
        names: names of the body's fields.
        embeds: whether the model computes embeddings.

    Raises:
        RequestError: the fields select no route, or several routes.
    """
    kinds = {"messages": EMBEDDING if embeds else CHAT, "prompt": COMPLETION, "input": EMBEDDING}
    found = [name for name in kinds if name in names]
    if len(found) != 1:
        shown = " and ".join(found) or "no field that says its route"
        raise RequestError(
            f"the request has {shown}; give messages (a chat), prompt (a completion) or input (embeddings), and for other "
            "requests use their own routes, such as /score",
            param=found[-1] if found else None,
        )
    return kinds[found[0]]
