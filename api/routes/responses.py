"""Routes below /v1/responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from litestar import Request, delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp

from llmfw.api.http.body import report_ignored
from llmfw.api.http.sse import EventStreamResponse
from llmfw.api.responses.request import decode_input, decode_request
from llmfw.api.responses.service import ResponseService
from llmfw.api.schemas.responses import (
    DeletedResponse,
    InputRequest,
    InputTokens,
    ItemList,
    Response,
    StreamEvent,
)
from llmfw.core.base.errors import RequestError
from llmfw.core.interfaces.operation import describe

from .respond import answer, json_response, read_json, while_connected

MAX_PAGE, DEFAULT_PAGE = 100, 20


def response_routes(responses: ResponseService, *, strict: bool = False) -> list[HTTPRouteHandler]:
    """Return the route handlers of `/v1/responses`.

    Args:
        strict: whether to reject requests with fields that would be ignored.
    """
    return [*_making_routes(responses, strict), *_stored_routes(responses)]


def _making_routes(responses: ResponseService, strict: bool) -> list[HTTPRouteHandler]:
    @post(
        "/v1/responses",
        status_code=200,
        opt=describe(
            "Create a response, and store it.",
            scope="responses",
            body=responses.body_type,
            reply=Response,
            chunk=StreamEvent,
        ),
    )
    async def create_response(request: Request[Any, Any, Any]) -> ASGIApp:
        body, ignored = decode_request(await read_json(request), responses.body_type)
        headers = report_ignored(ignored, strict)
        if body.background:
            job = await while_connected(request.receive, responses.prepare(body))
            queued = await responses.run_in_background(job)
            if body.stream:
                return EventStreamResponse(await responses.follow(queued.id), headers)
            return json_response(queued, headers)
        return await answer(
            request.receive,
            responses.prepare(body),
            reply=responses.reply,
            stream=responses.stream,
            streams=body.stream,
            headers=headers,
        )

    @post(
        "/v1/responses/input_tokens",
        status_code=200,
        opt=describe(
            "Count the tokens of an input.", scope="responses", body=InputRequest, reply=InputTokens
        ),
    )
    async def count_input_tokens(request: Request[Any, Any, Any]) -> ASGIApp:
        body, ignored = decode_input(await read_json(request))
        headers = report_ignored(ignored, strict)
        count = await while_connected(request.receive, responses.count_tokens(body))
        return json_response(InputTokens(input_tokens=count), headers)

    return [create_response, count_input_tokens]


def _stored_routes(responses: ResponseService) -> list[HTTPRouteHandler]:
    @get(
        "/v1/responses/{response_id:str}",
        opt=describe(
            "Return a stored response, or the events of a background one.",
            scope="responses",
            reply=Response,
            chunk=StreamEvent,
            query={"stream": bool, "starting_after": int},
        ),
    )
    async def retrieve_response(request: Request[Any, Any, Any], response_id: str) -> ASGIApp:
        query = request.query_params
        if _streams(query):
            return EventStreamResponse(await responses.follow(response_id, _starting_after(query)))
        return _json(await responses.get(response_id))

    @delete(
        "/v1/responses/{response_id:str}",
        status_code=200,
        opt=describe("Delete a stored response.", scope="responses", reply=DeletedResponse),
    )
    async def delete_response(response_id: str) -> ASGIApp:
        await responses.delete(response_id)
        return json_response(DeletedResponse(id=response_id))

    @post(
        "/v1/responses/{response_id:str}/cancel",
        status_code=200,
        opt=describe("Cancel a background response.", scope="responses", reply=Response),
    )
    async def cancel_response(response_id: str) -> ASGIApp:
        return _json(await responses.cancel(response_id))

    @get(
        "/v1/responses/{response_id:str}/input_items",
        opt=describe(
            "List a response's input items.",
            scope="responses",
            reply=ItemList,
            query={"after": str, "limit": int, "order": Literal["asc", "desc"]},
        ),
    )
    async def list_input_items(request: Request[Any, Any, Any], response_id: str) -> ASGIApp:
        query = request.query_params
        page = await responses.input_items(
            response_id,
            after=query.get("after"),
            limit=_limit(query),
            newest_first=_order(query) == "desc",
        )
        return json_response(page)

    return [retrieve_response, delete_response, cancel_response, list_input_items]


def _json(body: bytes) -> ASGIResponse:
    return ASGIResponse(body=body, media_type="application/json")


def _streams(query: Mapping[str, str]) -> bool:
    given = query.get("stream", "false").lower()
    if given not in ("true", "1", "false", "0"):
        raise RequestError(f"stream is {given[:100]!r}; it must be true or false", param="stream")
    streams = given in ("true", "1")
    if "starting_after" in query and not streams:
        raise RequestError(
            "starting_after needs stream to be true; set it, or leave starting_after out",
            param="starting_after",
        )
    return streams


def _starting_after(query: Mapping[str, str]) -> int:
    given = query.get("starting_after")
    if given is None:
        return -1
    if not (given.isascii() and given.isdigit() and len(given) < 10):
        raise RequestError(
            f"starting_after is {given[:100]!r}; it must be the sequence_number of an event",
            param="starting_after",
        )
    return int(given)


def _limit(query: Mapping[str, str]) -> int:
    given = query.get("limit", str(DEFAULT_PAGE))
    if not (given.isascii() and given.isdigit() and len(given) < 4 and 1 <= int(given) <= MAX_PAGE):
        raise RequestError(
            f"limit is {given[:100]!r}; it must be a number from 1 to {MAX_PAGE}", param="limit"
        )
    return int(given)


def _order(query: Mapping[str, str]) -> str:
    given = query.get("order", "desc")
    if given not in ("asc", "desc"):
        raise RequestError(f"order is {given[:100]!r}; it must be asc or desc", param="order")
    return given
