"""POST /v1/chat/completions."""

from __future__ import annotations

from functools import partial
from typing import Any

from litestar import Request, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp, Receive

from llmfw.api.chat.service import ChatService
from llmfw.api.http.body import decode_generation, report_ignored
from llmfw.api.schemas.chat import ChatChunk, ChatCompletion
from llmfw.api.text.by_model import ByModel
from llmfw.api.text.extras import includes_usage
from llmfw.core.interfaces.operation import describe

from .respond import answer, read_json


def chat_routes(chats: ByModel[ChatService], *, strict: bool = False) -> list[HTTPRouteHandler]:
    """Return the route handlers of `/v1/chat/completions`.

    Args:
        chats: services of the models.
        strict: whether to reject requests with fields that would be ignored.
    """

    @post(
        "/v1/chat/completions",
        status_code=200,
        opt=describe(
            "Create a chat completion.", body=chats.first.body_type, reply=ChatCompletion, chunk=ChatChunk
        ),
    )
    async def create_chat_completion(request: Request[Any, Any, Any]) -> ASGIApp:
        return await answer_chat(chats, await read_json(request), request.receive, strict=strict)

    return [create_chat_completion]


async def answer_chat(chats: ByModel[ChatService], raw: bytes, receive: Receive, *, strict: bool) -> ASGIApp:
    """Answer a body of this route.

    Args:
        chats: services of the models.
        receive: `receive` of the request, whose body has been read.
        strict: whether to reject a body with fields that would be ignored.
    """
    body, ignored = decode_generation(raw, chats.first.body_type)
    del raw  # with images, it may take megabytes
    headers = report_ignored(ignored, strict)
    include_usage = includes_usage(body.stream_options)
    chat = chats.of(body.model)
    return await answer(
        receive,
        chat.start(body),
        reply=chat.reply,
        stream=partial(chat.stream, include_usage=include_usage),
        streams=body.stream,
        headers=headers,
    )
