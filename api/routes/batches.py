"""Routes below /v1/batches."""

from __future__ import annotations

from typing import Any, Literal

from litestar import Request, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from llmfw.api.batches.service import BatchService
from llmfw.api.http.body import decode_nested, report_ignored
from llmfw.api.http.cursor_page import read_page_query
from llmfw.api.schemas.batches import Batch, BatchList, CreateBatchRequest
from llmfw.api.server.limits import SMALL_BODY_BYTES
from llmfw.core.interfaces.operation import describe

from .respond import json_response, read_json

MAX_PAGE, DEFAULT_PAGE = 100, 20


def batch_routes(batches: BatchService, *, strict: bool = False) -> list[HTTPRouteHandler]:
    """Return the route handlers of `/v1/batches`.

    Args:
        strict: whether to reject requests with fields that would be ignored.
    """

    @post(
        "/v1/batches",
        status_code=200,
        request_max_body_size=SMALL_BODY_BYTES,
        opt=describe(
            "Create a batch from a file of requests.", scope="batches", body=CreateBatchRequest, reply=Batch
        ),
    )
    async def create_batch(request: Request[Any, Any, Any]) -> ASGIApp:
        body, ignored = decode_nested(await read_json(request), CreateBatchRequest, ("output_expires_after",))
        headers = report_ignored(ignored, strict)
        return json_response(await batches.create(body), headers)

    @get(
        "/v1/batches",
        opt=describe(
            "List batches, newest first.",
            scope="batches",
            reply=BatchList,
            query={"after": str, "limit": int, "order": Literal["asc", "desc"]},
        ),
    )
    async def list_batches(request: Request[Any, Any, Any]) -> ASGIApp:
        query = read_page_query(request.query_params, prefix="batch_", most=MAX_PAGE, default=DEFAULT_PAGE)
        return json_response(await batches.list(query))

    @get("/v1/batches/{batch_id:str}", opt=describe("Return a batch.", scope="batches", reply=Batch))
    async def retrieve_batch(batch_id: str) -> ASGIApp:
        return json_response(await batches.get(batch_id))

    @post(
        "/v1/batches/{batch_id:str}/cancel",
        status_code=200,
        opt=describe("Cancel a batch, and keep the results so far.", scope="batches", reply=Batch),
    )
    async def cancel_batch(batch_id: str) -> ASGIApp:
        return json_response(await batches.cancel(batch_id))

    return [create_batch, list_batches, retrieve_batch, cancel_batch]
