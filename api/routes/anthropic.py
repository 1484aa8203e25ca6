"""Anthropic's routes, with errors in Anthropic's form: POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

from typing import Any

from litestar import Request, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from llmfw.api.anthropic.errors import ANTHROPIC_HANDLERS
from llmfw.api.anthropic.request import to_chat
from llmfw.api.anthropic.service import MessageService
from llmfw.api.http.body import decode_checked, report_ignored
from llmfw.api.schemas.anthropic import CountTokensRequest, Event, Message, TokenCount
from llmfw.api.text.by_model import ByModel
from llmfw.core.interfaces.operation import describe

from .respond import answer, json_response, read_json, while_connected


def anthropic_routes(services: ByModel[MessageService], *, strict: bool = False) -> list[HTTPRouteHandler]:
    """Return the route handlers of `/v1/messages`.

    Args:
        services: services of the models.
        strict: whether to reject requests with fields that would be ignored.
    """

    @post(
        "/v1/messages",
        status_code=200,
        exception_handlers=ANTHROPIC_HANDLERS,
        opt=describe(
            "Create a message (Anthropic's API).", body=services.first.body_type, reply=Message, chunk=Event
        ),
    )
    async def create_message(request: Request[Any, Any, Any]) -> ASGIApp:
        body, ignored = decode_checked(await read_json(request), services.first.body_type)
        messages = services.of(body.model)
        chat, also_ignored = to_chat(body, images=messages.reads_images)
        headers = report_ignored(ignored + also_ignored, strict)
        return await answer(
            request.receive,
            messages.start(chat),
            reply=messages.reply,
            stream=messages.stream,
            streams=body.stream,
            headers=headers,
        )

    @post(
        "/v1/messages/count_tokens",
        status_code=200,
        exception_handlers=ANTHROPIC_HANDLERS,
        opt=describe(
            "Count the tokens of messages (Anthropic's API).", body=CountTokensRequest, reply=TokenCount
        ),
    )
    async def count_tokens(request: Request[Any, Any, Any]) -> ASGIApp:
        body, ignored = decode_checked(await read_json(request), CountTokensRequest)
        messages = services.of(body.model)
        chat, also_ignored = to_chat(body, images=messages.reads_images)
        headers = report_ignored(ignored + also_ignored, strict)
        return json_response(await while_connected(request.receive, messages.count_tokens(chat)), headers)

    return [create_message, count_tokens]
