"""Routes below /v1/files."""

from __future__ import annotations

from typing import Any, Literal

from litestar import Request, delete, get, post, route
from litestar.enums import HttpMethod
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from llmfw.api.files.disposition import write_disposition
from llmfw.api.files.form import MEDIA_TYPE
from llmfw.api.files.limits import MAX_FILE_BYTES
from llmfw.api.files.ranges import UnsatisfiableRangeError, read_range
from llmfw.api.files.service import FILE_PREFIX, FileService, file_form
from llmfw.api.http.cursor_page import read_page_query
from llmfw.api.schemas.files import Binary, DeletedFile, FileList, FileObject
from llmfw.api.schemas.files import FileForm as FileFields
from llmfw.core.interfaces.operation import describe

from .download import Download
from .form_body import body_chunks, check_length, form_boundary
from .lingering import Lingering
from .respond import json_response

MAX_PAGE = 10_000
CONTENT_TYPE = "application/octet-stream"
"""Content type of all files. The server does not know their types, and browsers must not render them."""


def file_routes(files: FileService) -> list[HTTPRouteHandler]:
    """Return the route handlers of `/v1/files`."""
    return [*_list_routes(files), *_item_routes(files)]


def _list_routes(files: FileService) -> list[HTTPRouteHandler]:
    @post(
        "/v1/files",
        status_code=200,
        request_max_body_size=None,
        middleware=[Lingering],
        opt=describe(
            "Upload a file.", scope="files", body=FileFields, body_media_type=MEDIA_TYPE, reply=FileObject
        ),
    )
    async def create_file(request: Request[Any, Any, Any]) -> ASGIApp:
        form = file_form(body_chunks(request), form_boundary(request))
        check_length(request, form, MAX_FILE_BYTES)
        return json_response(await files.upload(form))

    @get(
        "/v1/files",
        opt=describe(
            "List files.",
            scope="files",
            reply=FileList,
            query={"purpose": str, "limit": int, "after": str, "order": Literal["asc", "desc"]},
        ),
    )
    async def list_files(request: Request[Any, Any, Any]) -> ASGIApp:
        query = request.query_params
        page = read_page_query(query, prefix=FILE_PREFIX, most=MAX_PAGE, default=MAX_PAGE)
        return json_response(await files.list(page, query.get("purpose")))

    return [create_file, list_files]


def _item_routes(files: FileService) -> list[HTTPRouteHandler]:
    @get(
        "/v1/files/{file_id:str}", opt=describe("Return a file's metadata.", scope="files", reply=FileObject)
    )
    async def retrieve_file(file_id: str) -> ASGIApp:
        return json_response(await files.get(file_id))

    @delete(
        "/v1/files/{file_id:str}",
        status_code=200,
        opt=describe("Delete a file.", scope="files", reply=DeletedFile),
    )
    async def delete_file(file_id: str) -> ASGIApp:
        return json_response(await files.delete(file_id))

    @route(
        "/v1/files/{file_id:str}/content",
        http_method=[HttpMethod.GET, HttpMethod.HEAD],
        status_code=200,
        opt=describe(
            "Download a file's contents, or a byte range of them.",
            scope="files",
            reply=Binary,
            media_type=CONTENT_TYPE,
        ),
    )
    async def file_content(request: Request[Any, Any, Any], file_id: str) -> ASGIApp:
        return await _content(files, request, file_id)

    return [retrieve_file, delete_file, file_content]


async def _content(files: FileService, request: Request[Any, Any, Any], file_id: str) -> ASGIApp:
    """Return the reply with a file's bytes, or a range of them, once the first bytes have been read."""
    record = await files.find(file_id)
    headers = {
        "content-type": CONTENT_TYPE,
        "content-disposition": write_disposition(record.filename),
        "x-content-type-options": "nosniff",
        "accept-ranges": "bytes",
    }
    if request.method == "HEAD":
        return Download(None, b"", 200, headers | {"content-length": str(record.bytes)})
    asked = _range(request, record.bytes)
    start, end = asked or (0, record.bytes)
    headers["content-length"] = str(end - start)
    if asked:
        headers["content-range"] = f"bytes {start}-{end - 1}/{record.bytes}"
    pieces = files.read(file_id, start, end)
    first = await anext(pieces, b"")
    return Download(pieces, first, 206 if asked else 200, headers)


def _range(request: Request[Any, Any, Any], size: int) -> tuple[int, int] | None:
    """Return the requested range of a file, or None for the whole file.

    Raises:
        HTTPException: 416 if the file has no such range.
    """
    if "if-range" in request.headers:  # files have no validators, so the condition cannot hold
        return None
    header = request.headers.get("range")
    try:
        return read_range(header, size)
    except UnsatisfiableRangeError:
        raise HTTPException(
            f"range is {(header or '')[:100]!r}; the file has {size} bytes, from 0 to {size - 1}",
            status_code=416,
            headers={"content-range": f"bytes */{size}"},
        ) from None
