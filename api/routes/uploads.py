"""Routes below /v1/uploads."""

from __future__ import annotations

from typing import Any

from litestar import Request, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from llmfw.api.files.form import MEDIA_TYPE
from llmfw.api.files.limits import MAX_PART_BYTES
from llmfw.api.files.uploads import UploadService, part_form
from llmfw.api.http.body import decode_checked, decode_nested, report_ignored
from llmfw.api.schemas.files import CompleteRequest, PartForm, Upload, UploadPart, UploadRequest
from llmfw.api.server.limits import SMALL_BODY_BYTES
from llmfw.core.interfaces.operation import describe

from .form_body import body_chunks, check_length, form_boundary
from .lingering import Lingering
from .respond import json_response, read_json


def upload_routes(uploads: UploadService, *, strict: bool = False) -> list[HTTPRouteHandler]:
    """Return the route handlers of `/v1/uploads`.

    Args:
        strict: whether to reject requests with fields that would be ignored.
    """
    return [*_part_routes(uploads, strict=strict), *_end_routes(uploads, strict=strict)]


def _part_routes(uploads: UploadService, *, strict: bool) -> list[HTTPRouteHandler]:
    """Return the handlers that start an upload and take its parts."""

    @post(
        "/v1/uploads",
        status_code=200,
        request_max_body_size=SMALL_BODY_BYTES,
        opt=describe("Start an upload of several parts.", scope="files", body=UploadRequest, reply=Upload),
    )
    async def create_upload(request: Request[Any, Any, Any]) -> ASGIApp:
        body, ignored = decode_nested(await read_json(request), UploadRequest, ("expires_after",))
        headers = report_ignored(ignored, strict)
        return json_response(await uploads.create(body), headers)

    @post(
        "/v1/uploads/{upload_id:str}/parts",
        status_code=200,
        request_max_body_size=None,
        middleware=[Lingering],
        opt=describe(
            "Add a part to an upload.",
            scope="files",
            body=PartForm,
            body_media_type=MEDIA_TYPE,
            reply=UploadPart,
        ),
    )
    async def add_part(request: Request[Any, Any, Any], upload_id: str) -> ASGIApp:
        form = part_form(body_chunks(request), form_boundary(request))
        check_length(request, form, MAX_PART_BYTES)
        return json_response(await uploads.add_part(upload_id, form))

    return [create_upload, add_part]


def _end_routes(uploads: UploadService, *, strict: bool) -> list[HTTPRouteHandler]:
    """Return the handlers that complete or cancel an upload."""

    @post(
        "/v1/uploads/{upload_id:str}/complete",
        status_code=200,
        request_max_body_size=SMALL_BODY_BYTES,
        opt=describe(
            "Complete an upload: join its parts into a file.",
            scope="files",
            body=CompleteRequest,
            reply=Upload,
        ),
    )
    async def complete_upload(request: Request[Any, Any, Any], upload_id: str) -> ASGIApp:
        body, ignored = decode_checked(await read_json(request), CompleteRequest)
        headers = report_ignored(ignored, strict)
        return json_response(await uploads.complete(upload_id, body), headers)

    @post(
        "/v1/uploads/{upload_id:str}/cancel",
        status_code=200,
        opt=describe("Cancel an upload.", scope="files", reply=Upload),
    )
    async def cancel_upload(upload_id: str) -> ASGIApp:
        return json_response(await uploads.cancel(upload_id))

    return [complete_upload, cancel_upload]
